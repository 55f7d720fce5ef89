"""Only the blocking client: what is drawn is read and checked by the same code in both clients."""

import pytest


@pytest.fixture
def client_kind() -> str:
    return "blocking"
