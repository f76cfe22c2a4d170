"""What every call of the control API has in common: admission, errors, conditions, paging."""
