"""Receipts as customers read them out, type them and paste them."""

import pytest

from momopay.models.receipts import receipt_key, receipts_in

RECEIPT = "SJK4H7L2QP"


@pytest.mark.parametrize(
    "text",
    [
        *(RECEIPT, "sjk4h7l2qp", "SjK4h7L2qP", " SJK4H7L2QP ", "SJK4H7L2QP.", "sjk4 h7l2 qp", "SJK4-H7L2-QP"),
        *(
            "S J K 4 H 7 L 2 Q P",
            "S.J.K.4.H.7.L.2.Q.P",
            "SJK4\u00a0H7L2QP",
            "\u200eSJK4H7\u200bL2QP\u202c",
            "(SJK4H7L2QP)",
        ),
        *("SJK4\u2013H7L2QP", "\uff33JK4H7L2QP", "SJK4H7L2QP\n", "'SJK4H7L2QP'", "receipt: sjk4 h7l2qp"),
        "SJK4H7L2QP Confirmed. Ksh1,250.00 sent to SHOP LTD for account INV-42 on 25/11/26 at 9:15 AM.",
        "Confirmed.SJK4H7L2QP Ksh1,250.00 received from JANE 0712345678. New balance is Ksh3,000.00.",
        "my receipt is sjk4h7 l2qp, paid yesterday",
    ],
)
def test_it_is_found_however_it_is_written(text: str) -> None:
    assert RECEIPT in receipts_in(text)


@pytest.mark.parametrize("text", ["", " ", "...", "SJK4H7L2Q", "SJK4H7L2QPX", "QP SJK4H7L2"])
def test_another_one_is_another(text: str) -> None:
    assert RECEIPT not in receipts_in(text)


def test_the_first_of_a_text_comes_first_and_long_texts_are_bounded() -> None:
    found = receipts_in("AAAA111111 reverses BBBB222222")
    assert found.index("AAAA111111") < found.index("BBBB222222")
    assert len(receipts_in("a1 " * 100_000)) < 2_000
    assert receipt_key("sbx-12 34") == "SBX1234"
