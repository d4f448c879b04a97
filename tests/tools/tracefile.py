# SPDX-License-Identifier: BSD-3-Clause
"""Files as BATON_TRACE makes them (include/baton_trace.h), with whatever a test wants in them."""
import struct

TICKS = 1_000_000_000  # of the clock of these files in a second: a tick is a nanosecond
FIRST = 5_000_000_000  # when they begin

SEND, RECV, SIGNAL, PUT, WAIT, BARRIER, WAIT_ANY, FUNCTION, JOIN, GROUP, CLAIM = 1, 2, 4, 5, 6, 8, 9, 20, 21, 22, 23
OK, PENDING, TIMEOUT, PEER = 0, 1, -12, -15
TRUNCATED, MISMATCH = -10, -11
DETACHED, TERMS, TERM, ANY_SOURCE, FOUND, JOINED = 1, 64, 256, 1024, 2048, 4096
KINDS = {SEND: ('send', 1, 0), RECV: ('recv', 2, 0), SIGNAL: ('signal', 1, 0), PUT: ('put', 1, 0),
         WAIT: ('wait_signal', 2, 0), WAIT_ANY: ('wait_signal_any', 2, 0), BARRIER: ('barrier', 0, 0), FUNCTION: ('launch', 0, 2),
         JOIN: ('stream_wait', 0, 3), GROUP: ('group', 0, 4), CLAIM: ('message', 0, 5)}


def table(offset, stride, count):
    return struct.pack('<QII', offset, stride, count)


def operation(kind, serial, peer=-1, tag=-1, enqueued=0, armed=0, issued=0, completed=0,
              status=None, signal=-1, context=-1, signals=0, flags=0, size=8, stream=0, parent=0,
              state=0, ran=0, user_data=0):
    """Stamps are nanoseconds since the file's beginning; 0 is not yet."""
    def stamp(ns):
        return FIRST + ns if ns else 0
    if status is None:
        status = OK if completed else PENDING
    return struct.pack('<6QBBBbHHQQQQQQiiiiQ', serial, stamp(enqueued), stamp(armed), stamp(issued),
                       stamp(completed), size if completed else 0, state, kind, 255, status, flags, 0,
                       size, stream, 0, user_data, parent, signals, peer, tag, signal, context, stamp(ran))


def counter(kind, peer, tag, called, completed, context=-1, signals=0, failed=0, moved=0):
    return struct.pack('<iihBBI6Q', peer, tag, context, kind, 1, 0, called, completed, failed, moved,
                       0, signals)


def header(rank, size, tables, state=2, clock=1, communicator=0x1234, pid=None, boot='a-boot',
           host='a-host', ahead=0, index=0, began=0):
    def text(value, room):
        return value.encode().ljust(room, b'\0')

    def reading(ns):
        return struct.pack('<4Q', FIRST + ns, 10_000_000_000 + ns + ahead, 10**18 + began + ns, 10)
    who = struct.pack('<QQIiiiQ', communicator, 0, index, rank, size, pid or 1000 + rank, 77)
    texts = text(boot, 40) + text(host, 64) + text('/bin/program', 128) + text('0.1.0', 64) + \
        text('near', 32) + text('host', 32)
    time = struct.pack('<Q', TICKS) + reading(0) + reading(1_000_000_000) + struct.pack('<QQ', 2, 0)
    how = struct.pack('<iIQ', 0, 0, 0) + text('', 480)
    more = struct.pack('<IIQQQ', 0, 0, 0, tables['rounds_known'], 0)
    body = who + texts + time + how + b''.join(
        table(*tables[name]) for name in ('kinds', 'paths', 'modules', 'rounds', 'counters',
                                          'operations')) + more + bytes(16) + \
        table(*tables['handed']) + bytes(40)
    whole = 8 + 4 + 4 + 8 + 4 + 4 + len(body)
    return b'BATONTRC' + struct.pack('<IIQII', 2, whole, tables['bytes'], state, clock) + body


def make(rank, size, operations, room=64, counters=(), rounds=(), handed=(), **more):
    """The bytes of a file.  operations: of operation(), which are put where their serials belong.
    handed: those that only their callers have seen."""
    ring = bytearray(128 * room)
    assert all(len(one) == 128 for one in operations)
    for one in operations:
        slot = (struct.unpack_from('<Q', one)[0] - 1) % room
        ring[128 * slot:128 * slot + 128] = one
    kinds = b''.join(struct.pack('<24sII', KINDS[k][0].encode(), KINDS[k][1], KINDS[k][2])
                     if k in KINDS else bytes(32) for k in range(32))
    parts = {'kinds': (kinds, 32), 'paths': (b'', 64), 'modules': (b'', 320),
             'rounds': (b''.join(struct.pack('<4Q', n, FIRST + enter, FIRST + leave, 0)
                                 for n, enter, leave in rounds), 32),
             'counters': (b''.join(counters), 64), 'operations': (bytes(ring), 128),
             'handed': (b''.join(handed), 128)}
    tables, data, at = {'rounds_known': len(rounds)}, b'', 2048
    for name, (content, stride) in parts.items():
        tables[name] = (at + len(data), stride, len(content) // stride)
        data += content + bytes(-len(content) % 64)
    tables['bytes'] = at + len(data)
    return header(rank, size, tables, **more).ljust(at, b'\0') + data
