"""What ``manage.py migrate`` runs."""
