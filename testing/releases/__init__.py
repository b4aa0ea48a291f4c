"""The previous commit of this project: its code, and the pods that its operator creates."""
