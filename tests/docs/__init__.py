"""The documentation: it can be built, says what the code says, and its commands run."""
