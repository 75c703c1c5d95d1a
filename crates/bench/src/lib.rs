//! The workloads of YCSB, their generators, and the runner that measures them.
