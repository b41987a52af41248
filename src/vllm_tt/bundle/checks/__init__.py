"""What can be wrong with a bundle beyond its syntax: small functions that yield findings."""
