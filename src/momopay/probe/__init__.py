"""Ask a service what its description leaves open, and keep what was seen in a profile.

``momopay probe`` is this from a terminal. A sandbox that loads a profile behaves as the service did.
"""

from momopay.probe.profile import Change, Finding, Profile
from momopay.probe.prompt import Spend
from momopay.probe.rows import ROWS, Cost, Row
from momopay.probe.run import probe

__all__ = ["ROWS", "Change", "Cost", "Finding", "Profile", "Row", "Spend", "probe"]
