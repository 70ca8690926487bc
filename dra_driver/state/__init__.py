"""The ledger: one small checksummed file per claim, an index of holders, device locks; and the schema of those files."""
