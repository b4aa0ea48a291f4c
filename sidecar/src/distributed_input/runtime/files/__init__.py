"""Files and folders that several processes use."""
