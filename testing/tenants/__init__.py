"""Measures what one tenant's attacks cost another one, on a real API server.

attacks              what the first tenant does
hostile_dispatcher   a dispatcher of the first tenant's image
first_come           an operator without turns of namespaces, for comparison
"""
