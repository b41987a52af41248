"""Proves that nothing reaches outside of this machine: any other connection is an error."""

import socket

__all__ = ["OutsideConnection", "guarded"]


class OutsideConnection(AssertionError):
    pass


def guarded(connect):
    """``connect`` of a socket, for addresses of this machine alone."""

    def checked(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OutsideConnection(address)
        return connect(self, address)

    return checked


def install():
    """For the rest of this process."""
    socket.socket.connect = guarded(socket.socket.connect)
    socket.socket.connect_ex = guarded(socket.socket.connect_ex)
