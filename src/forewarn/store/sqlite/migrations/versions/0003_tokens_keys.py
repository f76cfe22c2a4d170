"""Tokens, when they were last used, and requests with a key."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "token_uses",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("asked", sa.Text, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("answer", sa.LargeBinary),
    )
    op.create_index("keys_by_commit", "keys", ["seq"])
