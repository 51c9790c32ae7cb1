"""The ledger on an Ethereum-compatible chain: contracts, endpoints, transactions and final epochs."""
