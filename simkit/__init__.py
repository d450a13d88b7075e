"""simkit: decide how to schedule an AI-agent platform."""
