"""What the kernel knows of a connection and its reader does not: that the peer has closed, what it took, when data last came."""

import asyncio
import fcntl
import select
import socket
import struct
import sys
import termios

# Other kernels answer in other words; there nothing of this is known.
TELLS = sys.platform == "linux"
HANG_UP = select.POLLRDHUP if TELLS else 0
# ``tcpi_last_data_recv`` of ``struct tcp_info`` (linux/tcp.h): after 8 bytes and eleven numbers of 32 bits each.
LAST_DATA_AT = 8 + 11 * 4
# Of a tick of the slowest kernel clock (100 Hz), in which that age is counted.
TICK_NS = 10_000_000


def untaken_bytes(transport: asyncio.Transport) -> int:
    """So much of what was written the server's host had not acknowledged when it closed in order, which acknowledges all that had
    come. Of TLS 0, since it is not known: the last words of TLS may have been said long before the connection ends.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return 0
    plain = transport.get_extra_info("socket")
    (waiting,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(waiting) + transport.get_write_buffer_size()


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether bytes lie in the socket that nobody has read yet."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return False
    (unread,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.FIONREAD, bytes(4)))
    return int(unread) > 0


def last_data_ns(transport: asyncio.Transport, now_ns: int) -> int:
    """The earliest time at which the last data can have come to this host, whenever it was read; 0 where the kernel tells no time."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return 0
    told = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_AT + 4)
    if len(told) < LAST_DATA_AT + 4:
        return 0
    (age_ms,) = struct.unpack_from("I", told, LAST_DATA_AT)
    return now_ns - int(age_ms) * 1_000_000 - TICK_NS
