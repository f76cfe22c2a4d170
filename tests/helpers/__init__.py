"""What several tests share: services, machines, programs, certificates and worlds made of them."""
