"""How workers are divided among inputs under an `InputPolicy`. No cluster access."""
