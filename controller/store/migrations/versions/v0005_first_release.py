"""The schema of 0.1.0, from which every existing store is migrated. It is never made anew."""

revision = "0005"
down_revision = None
