"""The storages that a store can stand on. They share a contract and a test suite, not code."""
