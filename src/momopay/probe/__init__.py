"""Ask a service what its description leaves open, and keep what was seen in a profile.

``momopay probe`` is this from a terminal. A sandbox that loads a profile behaves as the service did.
"""

from momopay.probe.findings import Finding
from momopay.probe.profile import Change, Profile
from momopay.probe.prompt import Spend
from momopay.probe.rows import Cost, Row
from momopay.probe.run import probe
from momopay.probe.table import ROWS

__all__ = ["ROWS", "Change", "Cost", "Finding", "Profile", "Row", "Spend", "probe"]
