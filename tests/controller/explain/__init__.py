"""Why a session or a job cannot be used."""
