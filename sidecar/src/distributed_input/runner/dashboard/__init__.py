"""`distributed-input dashboard`: a page about inputs, served on this machine only.

`history` is pure. `sampler` asks dispatchers in a thread. `server` answers the browser.
"""
