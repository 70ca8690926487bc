"""Who knocks: gRPC servers on unix sockets, registration, the DRAPlugin services. Decides nothing about devices."""
