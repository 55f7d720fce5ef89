"""Views that receive callbacks, one for each framework; each module needs its own framework alone."""
