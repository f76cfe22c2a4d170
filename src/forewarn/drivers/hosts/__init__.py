"""Drivers in processes of their own, on the hosts: control's side, and that of a process."""
