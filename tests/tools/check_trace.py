#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_trace.py --baton FILE [--program FILE] CASE

Run `baton trace` over files that tracefile.py writes, or that a program leaves (hang.c, which hangs; the sample
hello or host_poll), and look at what it says and draws.  CASE is one of the functions check_* below.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import tracefile as t
from check_tool import Failure, Tool, require

US = 1000


class Folder:
    """A folder of files, and the command over it."""

    def __init__(self, tool):
        self.tool = tool
        self.holder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.holder.name)
        self.count = 0

    def add(self, content, name=None):
        self.count += 1
        (self.path / f'{name or f"baton-{self.count:02d}"}.trace').write_bytes(content)
        return self

    def ranks(self, *operations, **more):
        for rank, ops in enumerate(operations):
            self.add(t.make(rank, len(operations), ops, **more))
        return self

    def trace(self, *arguments, status=0):
        return self.tool.run('trace', str(self.path), *arguments, status=status)

    def report(self, *arguments, status=0):
        return json.loads(self.trace('--json', *arguments, status=status)[0])

    def written(self, option, *arguments):
        """What is in the file that the option has written."""
        path = self.path / 'written'
        self.trace(f'--{option}={path}', *arguments)
        return path.read_text(encoding='utf-8')


def exchange(turns=10):
    """Rank 0: a function of 300 us, then a send; beside it, detached, a receive.  Rank 1 receives."""
    first, second = [], []
    for i in range(turns):
        at = 1000 * US * i + 1
        first += [t.operation(t.FUNCTION, 3 * i + 1, enqueued=at, armed=at, completed=at + 300 * US),
                  t.operation(t.SEND, 3 * i + 2, 1, 5, enqueued=at, armed=at + 300 * US,
                              issued=at + 310 * US, completed=at + 500 * US, size=4096),
                  t.operation(t.RECV, 3 * i + 3, 1, 6, enqueued=at, armed=at, issued=at,
                              completed=at + 400 * US, flags=t.DETACHED, stream=9)]
        second += [t.operation(t.SEND, 2 * i + 1, 0, 6, enqueued=at, armed=at, issued=at,
                               completed=at + 100 * US, stream=8),
                   t.operation(t.RECV, 2 * i + 2, 0, 5, enqueued=at, armed=at, issued=at,
                               completed=at + 510 * US)]
    return first, second


def check_summary(tool):
    """Times, shares and peers are those of the operations."""
    folder = Folder(tool).ranks(*exchange())
    report = folder.report()
    require(report['matched'] == {'messages': 20, 'waits': 0}, report['matched'])
    require(report['checks'] == [], report['checks'])
    life = 9 * 1000 * US + 500 * US
    by_name = {(s['rank'], s['handle']): s for s in report['streams']}
    require(len(by_name) == 4, by_name)
    stream = by_name[(0, '0x0')]
    require(stream['computing_ns'] == 3000 * US and stream['waiting_ns'] == 2000 * US and
            stream['idle_ns'] == life - 5000 * US, stream)
    # A detached receive does not hold its stream up.
    require(by_name[(0, '0x9')]['waiting_ns'] == 0, by_name)
    rank = report['ranks'][0]
    # Sends are 300 to 500 us of each turn, receives 0 to 400, functions 0 to 300.
    require(rank['transfers_ns'] == 5000 * US and rank['hidden_ns'] == 3000 * US and
            rank['hidden_share'] == 0.6, rank)
    require(rank['messages_sent'] == 10 and rank['bytes_sent'] == 40960, rank)
    rank = report['ranks'][1]
    require(rank['waited_most_for'] == 0 and rank['waited_ns'] == 10 * 310 * US, rank)
    out, _ = folder.trace()
    for words in ('rank 0, stream 0', '3.00 ms', '60 % of it hidden', 'waited most for rank 0',
                  'on one node'):
        require(words in out, words)
    # A receive from any rank waits from its arming until the message that it gets; one from a rank that is issued so
    # late waits for its turn.
    for flags, waited in ((t.ANY_SOURCE, 400), (0, 0)):
        report = Folder(tool).ranks(
            [t.operation(t.SEND, 1, 1, 2, enqueued=500, armed=500, issued=500, completed=600)],
            [t.operation(t.RECV, 1, 0, 2, enqueued=100, armed=100, issued=500, completed=600,
                         flags=flags)]).report()
        require(report['ranks'][1]['waited_ns'] == waited, report)
    # One that ended in an error, or not at all, has waited to its end: also for a rank that has done nothing.
    for kind in (t.RECV, t.SEND):
        for more, waited in (({'completed': 700, 'status': t.PEER}, 600), ({'completed': 700, 'status': t.TIMEOUT}, 600),
                             ({}, 800)):
            report = Folder(tool).ranks(
                [t.operation(kind, 1, 1, 2, enqueued=100, armed=100, issued=100, **more),
                 t.operation(t.FUNCTION, 2, enqueued=800, armed=800, completed=900, stream=3)], []).report()
            require([(rank['rank'], rank['waited_most_for'], rank['waited_ns']) for rank in report['ranks']] ==
                    [(0, 1, waited)], report)
    # Of one that ended well, and whose other side the ring has lost, nobody knows.
    report = Folder(tool).ranks([t.operation(t.RECV, 1, 1, 2, enqueued=100, armed=100, issued=100, completed=700)],
                                []).report()
    require(report['ranks'][0]['waited_most_for'] == -1, report)


def check_waited(tool):
    """Waits for several ranks count for the one that had not come, or for nobody."""
    def waited(*ranks):
        report = Folder(tool).ranks(*ranks).report()
        return [(rank['waited_most_for'], rank['waited_ns'], rank['waited_for_nobody_ns']) for rank in report['ranks']]

    def wait(kind, counters, **more):
        terms = [t.operation(0, 2 + i, peer, parent=1, signal=peer, context=0, signals=1, flags=t.TERM)
                 for i, peer in enumerate(counters)]
        return [t.operation(kind, 1, -1, enqueued=100, armed=100, issued=100, flags=t.TERMS, **more)] + terms

    def barrier(at, serial=1, **more):
        return t.operation(t.BARRIER, serial, enqueued=at, armed=at, issued=at, **more)

    # The rank that came last to a barrier was waited for until it came, and waited for nobody.
    require(waited([barrier(100, completed=500)], [barrier(400, completed=500)], [barrier(200, completed=500)]) ==
            [(1, 300, 0), (-1, 0, 0), (1, 200, 0)], 'a barrier')
    for status in (t.TIMEOUT, t.PEER):
        late = {'completed': 700, 'status': status}
        # The one that has not come to a barrier, or has not given its signal.
        require(waited([barrier(100, **late)], [barrier(100, **late)], [t.operation(
            t.FUNCTION, 1, enqueued=10, armed=10, completed=20)]) == [(2, 600, 0), (2, 600, 0), (-1, 0, 0)], 'a barrier')
        given = [t.operation(t.SIGNAL, 1, 0, signal=1, context=0, signals=1, enqueued=150, armed=150, issued=150,
                             completed=160)]
        require(waited(wait(t.WAIT, (1, 2), **late), given, [])[0] == (2, 600, 0), 'several counters')
        # Of any of several ranks none in particular.
        require(waited(wait(t.WAIT_ANY, (1, 2), **late), [], [])[0] == (-1, 0, 600), 'any of several counters')
        require(waited([t.operation(t.RECV, 1, -1, 2, enqueued=100, armed=100, **late)], [], [])[0] == (-1, 0, 600),
                'a receive from any rank')
    # What has not ended waits until the last event.
    require(waited([barrier(100)], [t.operation(t.FUNCTION, 1, enqueued=10, armed=10, completed=900)])[0] == (1, 800, 0),
            'a barrier that has not ended')
    # Of a rank without a file.
    folder = Folder(tool).add(t.make(0, 2, [barrier(100, completed=700)]))
    rank = folder.report(status=1)['ranks'][0]
    require((rank['waited_most_for'], rank['waited_for_nobody_ns']) == (-1, 600), rank)
    require('waited for nobody that the trace names: 600 ns' in folder.trace(status=1)[0], folder.trace(status=1))
    # A stream that waits for another one, from when it has nothing else to do.
    report = Folder(tool).ranks([t.operation(t.FUNCTION, 1, enqueued=10, armed=10, completed=400),
                                 t.operation(t.JOIN, 2, enqueued=20),
                                 t.operation(t.FUNCTION, 3, enqueued=10, armed=10, completed=900, stream=3)]).report()
    require([(one['computing_ns'], one['waiting_ns']) for one in report['streams']] == [(390, 500), (890, 0)], report)


def check_perfetto(tool):
    """Slices of a thread lie within each other or apart, and flows begin and end within slices."""
    events = json.loads(Folder(tool).ranks(*exchange()).written('perfetto'))['traceEvents']
    slices = {}
    for event in events:
        if event['ph'] == 'X':
            slices.setdefault((event['pid'], event['tid']), []).append(event)
    require(sum(len(group) for group in slices.values()) == 50, 'slices')
    for group in slices.values():
        for one, other in zip(group, group[1:]):
            require(one['ts'] + one['dur'] <= other['ts'] + 1e-6, f'{one} overlaps {other}')
    starts = {event['id']: event for event in events if event['ph'] == 's'}
    ends = {event['id']: event for event in events if event['ph'] == 'f'}
    require(len(starts) == 20 and starts.keys() == ends.keys(), 'flows')
    for flow in [*starts.values(), *ends.values()]:
        within = [s for s in slices[(flow['pid'], flow['tid'])]
                  if s['ts'] - 1e-6 <= flow['ts'] < s['ts'] + s['dur'] - 1e-6]
        require(len(within) == 1, flow)
    for key, start in starts.items():
        require(start['pid'] != ends[key]['pid'] and start['ts'] <= ends[key]['ts'], start)
    names = {event['args']['name'] for event in events if event['ph'] == 'M'}
    require('rank 1 (a-host, process 1001)' in names and 'stream 1 (0x9)' in names, names)


def check_drawing(tool):
    """The picture is XML of its own, with a row for each stream, and an arrow for each message."""
    folder = Folder(tool).ranks(*exchange())
    text = folder.written('svg')
    picture = xml.etree.ElementTree.fromstring(text)
    space = '{http://www.w3.org/2000/svg}'
    bars = [g for g in picture.iter(f'{space}g') if g.find(f'{space}title') is not None]
    require(len(bars) == 50, f'{len(bars)} bars')
    arrows = [g for g in picture.iter(f'{space}g') if g.get('marker-end')]
    require(len(arrows) == 1 and len(list(arrows[0])) == 20, 'arrows')
    labels = [label.text for label in picture.iter(f'{space}text')]
    for label in ('rank 0, stream 0', 'rank 0, stream 1', 'rank 1, stream 1', 'function',
                  'program: 9.51 ms'):
        require(label in labels, labels)
    # Where there is nothing, nothing is written.
    _, err = folder.trace('--from=9.6', f'--svg={folder.path / "none"}', status=64)
    require('--from=9.6 is beyond the end of the trace, which is 9.5' in err and
            not (folder.path / 'none').exists(), err)
    # A part of it has what is there alone.
    part = xml.etree.ElementTree.fromstring(folder.written('svg', '--from=2', '--to=3'))
    bars = [g for g in part.iter(f'{space}g') if g.find(f'{space}title') is not None]
    require(5 <= len(bars) <= 10, f'{len(bars)} bars of a part')
    page = folder.written('html')
    require(page.startswith('<!DOCTYPE html>') and '<svg' in page and '60 %' in page, 'the page')
    for text in (text, page):
        require('<script' not in text and 'href' not in text and 'url(http' not in text,
                'it needs other files')
    # Many narrow bars become few, and the picture says so; bad characters stay out of it.
    many = [t.operation(t.SEND, i + 1, 1, 0, enqueued=10 * i + 1, armed=10 * i + 1,
                        issued=10 * i + 1, completed=10 * i + 5) for i in range(20000)]
    other = [t.operation(t.RECV, i + 1, 0, 0, enqueued=10 * i + 1, armed=10 * i + 1,
                         issued=10 * i + 1, completed=10 * i + 9) for i in range(20000)]
    text = Folder(tool).ranks(many, other, room=32768, host='<&"\x01\xff').written('svg')
    xml.etree.ElementTree.fromstring(text)
    require(len(text) < 1000000 and 'bars are within others' in text and 'one in 1' in text,
            f'{len(text)} bytes')


def split_world(tool, world, part):
    """Four ranks; and a communicator of ranks 1 and 3, which are 0 and 1 there."""
    folder = Folder(tool).ranks(*world, state=1)
    for rank, operations in enumerate(part):
        folder.add(t.make(rank, 2, operations, communicator=0xab, index=1, pid=1001 + 2 * rank, began=10, state=1))
    return folder


def check_split(tool):
    """Ranks of a communicator that was split off are told apart from those of the world, everywhere."""
    def at(ns):
        return {'enqueued': ns, 'armed': ns, 'issued': ns}

    # Rank 3 waits in the part for rank 1 of the world, which waits for rank 2 there; that has done nothing.
    folder = split_world(tool, [[], [t.operation(t.RECV, 1, 2, 7, **at(10))], [], []],
                         [[t.operation(t.SEND, 1, 1, 5, enqueued=20)], [t.operation(t.RECV, 1, 0, 5, **at(10))]])
    first = 'ranks are those of communicator 1 (0000000000001234, of 4 ranks) where no other one is named'
    legend = 'communicator 2 (00000000000000ab) has 2 ranks, which in communicator 1 are: 1, 3'
    out, _ = folder.trace()
    for words in ('rank 3, stream 0', 'rank 3: 0 messages', 'waited most for rank 1', first, legend):
        require(words in out, words)
    out, _ = folder.trace('--hang', status=1)
    for words in ('rank 3, stream 0: receive of tag 5 from rank 0 in communicator 2 (as its rank 1), issued',
                  'rank 0 has called the send, but its stream is not past the receive of tag 7 from rank 2 in '
                  'communicator 1\n',
                  'in communicator 1, rank 1 waits in its receive of tag 7 from rank 2: rank 2 has sent tag 7 never',
                  first, legend):
        require(words in out, words)
    heads = folder.report('--hang', status=1)['moments'][0]['waiting']
    require([(head['name'], head['communicator_number'], head['rank']) for head in heads] ==
            [('rank 1', 1, 1), ('rank 3', 2, 1)], heads)
    for option in ('svg', 'html'):
        text = folder.written(option)
        for words in ('>rank 3, stream 0<', 'rank 3: receive of tag 5 from rank 0 in communicator 2 (as its rank 1)',
                      first, legend):
            require(words in text, words)
    events = json.loads(folder.written('perfetto'))['traceEvents']
    slices = {event['name']: event['args'] for event in events if event['ph'] == 'X'}
    require(slices['receive of tag 5 from rank 0 in communicator 2']['communicator'] == 2, slices)

    # One with the same ranks is no other one.
    folder = Folder(tool).ranks([t.operation(t.RECV, 1, 1, 7, **at(10))], [], state=1)
    folder.ranks([t.operation(t.RECV, 1, 1, 8, **at(10))], [], state=1, communicator=0xab, index=1, began=10)
    out, _ = folder.trace('--hang', status=1)
    require('in communicator' not in out and 'rank 1 has sent tag 8 never' in out, out)

    # Processes that are not in the first communicator are called by their own.
    folder = Folder(tool).ranks([], [t.operation(t.FUNCTION, 1, enqueued=10, armed=10, completed=90)], [], state=1)
    for rank, pid in enumerate((1002, 1003)):
        folder.add(t.make(rank, 2, [t.operation(t.RECV, 1, 1 - rank, 3, **at(10))], communicator=0xab, index=1, pid=pid,
                          began=10, state=1))
    out, _ = folder.trace()
    for words in ('rank 2, stream 0', 'rank 1 of communicator 2, stream 0', 'which in communicator 1 are: 2, - (-: not '
                  'known, or not in it)', 'waited most for rank 1 of communicator 2'):
        require(words in out, words)
    xml.etree.ElementTree.fromstring(folder.written('svg'))


def sentences(report):
    return '\n'.join(report['checks'])


def check_faults(tool):
    """What is wrong with files is said, and the others are read."""
    first, second = exchange()
    whole = t.make(0, 2, first)

    report = Folder(tool).add(whole).report(status=1)
    require('has 2 ranks, and the files of 1 are missing: rank 1' in sentences(report), report)

    for content, words in ((b'', 'does not begin as a trace does'),
                           (whole[:600], 'shorter than its header'),
                           (whole[:5000], 'was cut off'),
                           (whole.replace(b'BATONTRC', b'BATONTRX'), 'does not begin'),
                           (whole[:8] + b'\0\0\0\2' + whole[12:], 'other byte order'),
                           (whole[:8] + b'\7\0\0\0' + whole[12:], 'another version'),
                           (t.make(0, 2, first, state=0), 'is not complete'),
                           (t.make(2, 2, first), 'a rank that there cannot be')):
        report = Folder(tool).add(content, 'odd').add(t.make(1, 2, second)).report(status=1)
        require(f'odd.trace is left out: it {words}'[:25] in sentences(report) and
                words in sentences(report), f'{words}: {report["checks"]}')

    report = Folder(tool).add(whole, 'a').add(whole, 'b').add(t.make(1, 2, second)).report(status=1)
    require('b.trace is left out: it says that it is rank 0 of 2' in sentences(report), report)

    damaged = t.operation(t.SEND, 7, 5, 5, enqueued=1, armed=1, completed=2)
    report = Folder(tool).add(t.make(0, 2, [*first[:3], damaged])).add(
        t.make(1, 2, second)).report(status=1)
    require('1 operations are damaged' in sentences(report), report)

    # Two runs: the later is shown, and the other one can be asked for.
    folder = Folder(tool).ranks(first, second)
    folder.ranks(first[:3], second[:2], communicator=0x77, pid=None, boot='b-boot', began=10**9)
    report = folder.report()
    require(report['matched']['messages'] == 2 and '--run=0000000000001234' in sentences(report),
            report)
    require(folder.report('--run=1234')['matched']['messages'] == 20, 'the other run')
    _, err = folder.trace('--run=99', status=2)
    require('is of that run' in err, err)

    _, err = Folder(tool).trace(status=2)
    require('has no file *.trace' in err, err)
    # Where no file is left, the reasons are all that there is.
    _, err = Folder(tool).add(whole[:600], 'odd').trace(status=2)
    require('can be read' in err and 'odd.trace is left out: it is shorter than its header' in err, err)
    # One that has fewer bytes than it had when it was opened, as one of the kernel's has.
    short = pathlib.Path('/sys/kernel/uevent_seqnum')
    if short.exists() and short.stat().st_size > len(short.read_bytes()):
        folder = Folder(tool).ranks(first, second)
        (folder.path / 'short.trace').symlink_to(short)
        for arguments in ((), ('--hang',)):
            report = folder.report(*arguments, status=1)
            require('short.trace is left out: it became shorter while it was read' in sentences(report), report)
    _, err = tool.run('trace', '/nowhere', status=2)
    require('/nowhere cannot be read: No such file' in err, err)
    _, err = folder.trace('--svg=/nowhere/a.svg', status=2)
    require('/nowhere/a.svg cannot be written' in err, err)


def check_wrapped(tool):
    """What the ring has lost still counts: messages match by their numbers in the whole run."""
    def done(ns):
        return {'enqueued': ns, 'armed': ns, 'issued': ns, 'completed': ns}

    first, second = exchange(100)
    counters0 = [t.counter(t.SEND, 1, 5, 100, 100), t.counter(t.RECV, 1, 6, 100, 100)]
    counters1 = [t.counter(t.SEND, 0, 6, 100, 100), t.counter(t.RECV, 0, 5, 100, 100)]
    folder = Folder(tool).add(t.make(0, 2, first[-60:], room=60, counters=counters0))
    folder.add(t.make(1, 2, second[-64:], room=64, counters=counters1))
    report = folder.report()
    # Of rank 0 there are 20 turns, of rank 1 32.
    require(report['matched']['messages'] == 40, report)
    require('the first 240 operations were overwritten' in sentences(report) and
            'times, messages and bytes are of the rest' in sentences(report), report)
    require('before they were sent' not in sentences(report), report)

    # Serial 9 was reserved and is not used, so the first operation still stands there: its number is not known.
    folder = Folder(tool).add(t.make(0, 2, [t.operation(t.SEND, i, 1, 5, **done(i)) for i in (1, *range(10, 17))],
                                     room=8, counters=[t.counter(t.SEND, 1, 5, 15, 15)]))
    folder.add(t.make(1, 2, [t.operation(t.RECV, i, 0, 5, **done(i)) for i in range(1, 16)]))
    require(folder.report()['matched']['messages'] == 7, 'the left over')

    # Where failed ones are among the lost, nobody knows which of them kept their place.
    counters0[0] = t.counter(t.SEND, 1, 5, 101, 100, failed=1)
    folder = Folder(tool).add(t.make(0, 2, first[-60:], room=60, counters=counters0))
    folder.add(t.make(1, 2, second[-64:], room=64, counters=counters1))
    require(folder.report()['matched']['messages'] == 20, 'messages without numbers')

    # A failure that is still there is known, also that of a receive whose message a probe has found.
    sends = t.make(0, 2, [t.operation(t.SEND, i, 1, 5, **done(i)) for i in range(1, 21)],
                   counters=[t.counter(t.SEND, 1, 5, 20, 20)])
    plain = [t.operation(t.RECV, i, 0, 5, **done(i)) for i in range(1, 20)]
    claim = t.operation(t.CLAIM, 20, 0, 5, **done(20))
    for status in (t.TRUNCATED, t.MISMATCH):
        for last in ([t.operation(t.RECV, 20, 0, 5, status=status, **done(20))],
                     [claim, t.operation(t.RECV, 21, 0, 5, status=status, signals=20, flags=t.FOUND, **done(21))]):
            folder = Folder(tool).add(sends)
            folder.add(t.make(1, 2, (plain + last)[-8:], room=8, counters=[t.counter(t.RECV, 0, 5, 20, 19, failed=1)]))
            require(folder.report()['matched']['messages'] == 9 - len(last), 'a receive that failed')
    # One that ended without its message, which another has received: that one was counted anew.
    retaken = [claim, t.operation(t.RECV, 21, 0, 5, status=t.TIMEOUT, signals=20, flags=t.FOUND, **done(21)),
               t.operation(t.RECV, 22, 0, 5, signals=20, flags=t.FOUND, **done(22))]
    folder = Folder(tool).add(sends)
    folder.add(t.make(1, 2, (plain + retaken)[-8:], room=8, counters=[t.counter(t.RECV, 0, 5, 21, 20, failed=1)]))
    require(folder.report()['matched']['messages'] == 0, 'a message that was received twice')


def check_clocks(tool):
    """Stamps of two nodes are joined by what both did together, within the error that is stated."""
    ahead = 3000 * US  # rank 1's clock shows that much more at the same moment
    first = [t.operation(t.SEND, 1, 1, 0, enqueued=10 * US, armed=10 * US, issued=10 * US,
                         completed=20 * US)]
    second = [t.operation(t.RECV, 1, 0, 0, enqueued=1 * US, armed=1 * US, issued=1 * US,
                          completed=50 * US)]
    folder = Folder(tool).add(t.make(0, 2, first, rounds=[(1, 1 * US, 9 * US),
                                                         (2, 100 * US, 140 * US)]))
    folder.add(t.make(1, 2, second, boot='b-boot', host='b-host', ahead=ahead,
                      rounds=[(1, 2 * US, 8 * US), (2, 90 * US, 110 * US)]))
    files = folder.report()['files']
    require(files[0]['clock_offset_ns'] == 0, files)
    # By round 1 between -7 and 7 us, by round 2 between -10 and 50.
    require(files[1]['clock_offset_ns'] == -ahead and files[1]['clock_error_ns'] == 7 * US, files)
    require('joined to within 7.00 us' in folder.trace()[0], 'the error')
    # Without rounds there is the time of day, and a sentence.
    folder = Folder(tool).add(t.make(0, 2, first))
    folder.add(t.make(1, 2, second, boot='b-boot', host='b-host', ahead=ahead))
    report = folder.report()
    require(report['files'][1]['clock_offset_ns'] == -ahead and
            report['files'][1]['clock_error_ns'] is None and
            'were never compared' in sentences(report), report)


def hang(tool, *operations, **more):
    """What --hang says of these operations of the ranks: the object, and its reasons by kind."""
    folder = Folder(tool).ranks(*operations, state=1, **more)
    report = folder.report('--hang', status=1)['moments'][0]
    out, _ = folder.trace('--hang', status=1)
    reasons = {}
    for reason in report['reasons']:
        reasons.setdefault(reason['kind'], []).append(reason)
        require(reason['sentence'] in out, reason)
    return report, reasons


def check_hang(tool):
    """Who waits for whom, and what never came."""
    def at(ns):
        return {'enqueued': ns, 'armed': ns, 'issued': ns}

    def done(ns):
        return dict(at(ns), completed=ns + 5)

    # Each rank receives from the one before it, and then sends.
    _, reasons = hang(tool, *([t.operation(t.RECV, 1, (rank - 1) % 3, 4, **at(10)),
                               t.operation(t.SEND, 2, (rank + 1) % 3, 4, enqueued=20)]
                              for rank in range(3)))
    require(list(reasons) == ['circle'] and reasons['circle'][0]['ranks'] == [0, 2, 1] and
            'rank 2 has called the send, but its stream is not past the receive of tag 4 from rank 1'
            in reasons['circle'][0]['sentence'], reasons)

    # The issue's own words.
    report, reasons = hang(tool, [t.operation(t.SEND, 1, 2, 6, **done(10)),
                                  t.operation(t.SEND, 2, 2, 6, **done(20))], [],
                           [t.operation(t.RECV, 1, 0, 7, **at(10)),
                            t.operation(t.SEND, 2, 1, 1, enqueued=11)])
    require(list(reasons) == ['absent'] and reasons['absent'][0]['sentence'] ==
            'rank 2 waits in its receive of tag 7 from rank 0: '
            'rank 0 has sent tag 6 twice and tag 7 never', reasons)
    require(report['behind'] == 1 and report['waiting'][0]['call_never_came'] and
            report['waiting'][0]['waits_for_rank'] == 0, report)

    # Both sides wait, and only their tags differ.
    _, reasons = hang(tool, [t.operation(t.SEND, 1, 1, 6, **at(10))],
                      [t.operation(t.RECV, 1, 0, 7, **at(10))])
    require('tags' in reasons and 'rank 0 sends to rank 1 with tag 6, and rank 1 receives from '
            'rank 0 with tag 7' in reasons['tags'][0]['sentence'], reasons)

    # A signal that never came; another one did, and so did a part of this one.
    _, reasons = hang(tool, [t.operation(t.SIGNAL, 1, 1, signal=3, context=0, signals=2, **done(10)),
                             t.operation(t.PUT, 2, 1, signal=5, context=0, signals=1, **done(11))],
                      [t.operation(t.WAIT, 1, 0, signal=3, context=0, signals=1, **done(20)),
                       t.operation(t.WAIT, 2, 0, signal=3, context=0, signals=2, **at(30)),
                       t.operation(t.WAIT, 3, 0, signal=4, context=0, signals=1, flags=t.DETACHED,
                                   **at(31))])
    texts = [reason['sentence'] for reason in reasons['absent']]
    require('rank 1 waits in its wait for signal 3 of context 0 of rank 0: rank 0 has given signal 3 '
            'twice, and this is the wait for its unit 3' in texts, texts)
    require('rank 1 waits in its wait for signal 4 of context 0 of rank 0: rank 0 has given signal 3 '
            'twice, signal 5 once and signal 4 never' in texts, texts)

    # A wait for several counters, one of which has come.
    _, reasons = hang(tool, [t.operation(t.SIGNAL, 1, 1, signal=2, context=0, signals=2, **done(10))],
                      [t.operation(t.WAIT, 1, flags=t.TERMS, **at(10))] +
                      [t.operation(0, i, 0, parent=1, signal=i, context=0, signals=2, flags=t.TERM)
                       for i in (2, 3)])
    require('rank 0 has given signal 2 twice and signal 3 never' in
            reasons['absent'][0]['sentence'], reasons)

    # A barrier that one rank has not called, and a receive from any rank that nobody sends to.
    _, reasons = hang(tool, [t.operation(t.BARRIER, 1, **done(10)), t.operation(t.BARRIER, 2, **at(20))],
                      [t.operation(t.BARRIER, 1, **done(10)), t.operation(t.RECV, 2, -1, 3, **at(20))])
    texts = [reason['sentence'] for kind in reasons for reason in reasons[kind]]
    require(any('rank 1 has called barriers once, and this is number 2' in text for text in texts) and
            any('no rank has sent tag 3' in text for text in texts), texts)

    # Three messages came for receives from any rank or of any tag, and the fourth was never sent.
    sends = [t.operation(t.SEND, i, 0, i % 2, **done(i)) for i in (1, 2, 3)]
    for peer, tag, words in ((-1, 1, 'receive of tag 1 from any rank: no rank has sent tag 1'),
                             (1, -1, 'receive of any tag from rank 1: rank 1 has not sent anything'),
                             (-1, -1, 'receive of any tag from any rank: no rank has sent anything')):
        report, reasons = hang(tool, [t.operation(t.RECV, i, 1, i % 2, **done(10 + i)) for i in (1, 2, 3)] +
                               [t.operation(t.RECV, 4, peer, tag, enqueued=20, armed=20)], sends)
        require(list(reasons) == ['absent'] and reasons['absent'][0]['sentence'] ==
                f'rank 0 waits in its {words} that it has not received', reasons)
        require(report['waiting'][0]['state'] == 'armed', report)

    # The fourth was called, and stands behind what only comes after that receive.
    for peer, tag in ((-1, 1), (1, -1)):
        _, reasons = hang(tool, [t.operation(t.RECV, i, 1, i % 2, **done(10 + i)) for i in (1, 2, 3)] +
                          [t.operation(t.RECV, 4, peer, tag, enqueued=20, armed=20),
                           t.operation(t.SEND, 5, 1, 9, enqueued=21)],
                          sends + [t.operation(t.RECV, 4, 0, 9, **at(20)),
                                   t.operation(t.SEND, 5, 0, 1, enqueued=21)])
        require(list(reasons) == ['circle'] and 'rank 1 has called the send, but its stream is not past '
                'the receive of tag 9' in reasons['circle'][0]['sentence'], reasons)

    # A probe has found the one message that there is.  A receive waits for the next one, and the sender, whose message
    # is long, for a receive of that one.
    claim = t.operation(t.CLAIM, 1, 0, 5, **at(20))
    receive = t.operation(t.RECV, 2, 0, 5, **at(30))
    said = 'rank 1 has found tag 5 of rank 0 by a probe and not received it'
    for counters in ((), (t.counter(t.RECV, 0, 5, 2, 0),)):
        folder = Folder(tool).add(t.make(0, 2, [t.operation(t.SEND, 1, 1, 5, **at(10))]))
        folder.add(t.make(1, 2, [claim, receive], counters=counters))
        report = folder.report('--hang', status=1)['moments'][0]
        require([(one['operation'], one['state'], one['why']) for one in report['waiting']] ==
                [('send of tag 5 to rank 1', 'issued', 'rank 1 has found it by a probe and not received it'),
                 ('message of tag 5 from rank 0', 'found by a probe',
                  'no call has received it (baton_recv_message)'),
                 ('receive of tag 5 from rank 0', 'issued',
                  'rank 0 has sent tag 5 once, and this is the one with number 2')], report)
        texts = [reason['sentence'] for reason in report['reasons']]
        require(sorted(texts) == [said, 'rank 1 waits in its receive of tag 5 from rank 0: rank 0 has sent tag 5 '
                                  'once, and this is the one with number 2'], texts)
        require(report['waiting'][1]['waited_ns'] == 10, report)
        require(said in folder.trace('--hang', status=1)[0], 'the text')
    # Its receive stands behind that other one; then it is what waits.
    _, reasons = hang(tool, [t.operation(t.SEND, 1, 1, 5, **at(10))],
                      [claim, receive, t.operation(t.RECV, 3, 0, 5, enqueued=40, signals=1, flags=t.FOUND)])
    texts = [reason['sentence'] for kind in reasons for reason in reasons[kind]]
    require(not any('by a probe' in text for text in texts) and
            any('rank 1 has called the receive, but its stream is not past' in text for text in texts), texts)
    # Messages that are received in another order than they were found in match those that were found.
    folder = Folder(tool).ranks(
        [t.operation(t.SEND, i, 1, 5, size=100 * i, **done(i)) for i in (1, 2, 3)],
        [t.operation(t.CLAIM, 1, 0, 5, **at(10), completed=41), t.operation(t.RECV, 2, 0, 5, **done(20)),
         t.operation(t.CLAIM, 3, 0, 5, **at(21), completed=31),
         t.operation(t.RECV, 4, 0, 5, signals=3, flags=t.FOUND, **done(30)),
         t.operation(t.RECV, 5, 0, 5, signals=1, flags=t.FOUND, **done(40))])
    require(folder.report()['matched'] == {'messages': 3, 'waits': 0}, 'messages that were found')
    require('Nothing hangs' in folder.trace('--hang')[0], 'it hangs')
    events = json.loads(folder.written('perfetto'))['traceEvents']
    flows = {}
    for event in events:
        if event['ph'] in 'sf':
            flows.setdefault(event['id'], {})[event['ph']] = event['ts']
    require(sorted((flow['s'], flow['f']) for flow in flows.values()) ==
            [(0.0, 0.043), (0.001, 0.023), (0.002, 0.033)], flows)

    # A peer whose process is gone; and one of another node, of which nobody here knows.
    lost = {'completed': 10**9, 'status': t.PEER}
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text(encoding='utf-8').strip()
    for where, gone in ((boot, True), ('b-boot', False)):
        folder = Folder(tool).add(t.make(0, 2, [t.operation(t.RECV, 1, 1, 3, **at(10), **lost)], boot=where))
        folder.add(t.make(1, 2, [], boot=where, state=1, pid=1 << 23))
        report = folder.report('--hang', status=1)
        said = report['moments'][0]['reasons'][0]['sentence']
        require(said == 'rank 0 waits in its receive of tag 3 from rank 1: rank 1 has sent tag 3 never' +
                ('; the process of rank 1 has ended' if gone else ''), said)
        require(('1 of 2 ranks have ended without destroying it: 1' in sentences(report)) == gone and
                ('1 of 2 ranks have not destroyed it, and whether they still run' in sentences(report)) != gone,
                report)

    # A rank of which nothing is known; and a function that does not return.
    folder = Folder(tool).add(t.make(0, 2, [t.operation(t.RECV, 1, 1, 0, **at(1)),
                                            t.operation(t.FUNCTION, 2, enqueued=2, armed=2, stream=3),
                                            t.operation(t.SEND, 3, 1, 0, enqueued=3, stream=3)]))
    kinds = [reason['kind'] for reason in folder.report('--hang', status=1)['moments'][0]['reasons']]
    require(kinds == ['unknown', 'program'], kinds)

    # Only the counters still know of a receive.
    more = [t.operation(t.SEND, 9 + i, 1, 0, **done(10 + i)) for i in range(8)]
    folder = Folder(tool).add(t.make(0, 2, more, room=8, counters=[
        t.counter(t.RECV, 1, 7, 3, 2), t.counter(t.SEND, 1, 0, 8, 8)]))
    folder.add(t.make(1, 2, [t.operation(t.SEND, i, 0, 7, **done(i)) for i in (1, 2)]))
    report = folder.report('--hang', status=1)['moments'][0]
    require('rank 1 has sent tag 7 twice, and this is the one with number 3' in
            report['reasons'][0]['sentence'], report)

    # No thread has looked at a receive, whatever the entry said of a function before; and a function runs, of which
    # only its stream says so.
    folder = Folder(tool).add(t.make(
        0, 2, [t.operation(t.FUNCTION, 2, enqueued=2, stream=3, state=1)],
        handed=[t.operation(t.RECV, 1, 1, 7, enqueued=1, state=0, ran=1),
                t.operation(0, 2, ran=3), t.operation(0, 0)]))
    folder.add(t.make(1, 2, []))
    heads = folder.report('--hang', status=1)['moments'][0]['waiting']
    require([(head['operation'], head['why']) for head in heads] ==
            [('receive of tag 7 from rank 1',
              "the trace does not show for what: work of the program's own, a group that is not ended, "
              'or a wait of the stream'),
             ('function', 'the function has not returned')], heads)

    # A stream waits for a receive on another one, of this communicator or of another one of the process; or for a group.
    for receives, index in (('whole', 0), ('part', 1)):
        wait = t.operation(t.JOIN, 2, enqueued=20, stream=4, flags=t.JOINED, signals=1, user_data=index)
        receive = t.operation(t.RECV, 1, 1, 7, **at(10))
        send = t.operation(t.SEND, 3, 1, 8, enqueued=30, stream=4)
        whole = [wait, send] if receives == 'part' else [receive, wait, send]
        folder = Folder(tool).ranks(whole, [t.operation(t.RECV, 1, 0, 8, **at(10))], state=1)
        folder.ranks([receive] if receives == 'part' else [], [], state=1, communicator=0xab, index=1, began=10)
        moment = folder.report('--hang', status=1)['moments'][0]
        whys = {head['operation']: head['why'] for head in moment['waiting']}
        require(whys['baton_stream_wait'] == 'it waits for the receive of tag 7 from rank 1, which has not ended', whys)
        texts = [reason['sentence'] for reason in moment['reasons']]
        require(len(texts) == 1 and texts[0].startswith('a circle: rank 0 waits in its') and
                'receive of tag 7 from rank 1: rank 1 has sent tag 7 never' in texts[0], texts)
    wait = t.operation(t.JOIN, 4, enqueued=20, stream=4, flags=t.JOINED, signals=1)
    _, reasons = hang(tool, [t.operation(t.GROUP, 1, **at(10)), t.operation(t.SEND, 2, 1, 3, parent=1, **done(10)),
                             t.operation(t.RECV, 3, 1, 7, parent=1, **at(10)), wait], [])
    require([reason['sentence'] for kind in reasons for reason in reasons[kind]] ==
            ['rank 0 waits in its receive of tag 7 from rank 1: rank 1 has sent tag 7 never'], reasons)

    # Operations that ended at their deadlines are looked at as they were before.
    late = {'completed': 10**9, 'status': t.TIMEOUT}
    _, reasons = hang(tool, *([t.operation(t.RECV, 1, 1 - rank, 0, **at(10), **late),
                               t.operation(t.SEND, 2, 1 - rank, 0, enqueued=20, armed=10**9,
                                           issued=10**9, completed=10**9 + 1)] for rank in (0, 1)))
    require(list(reasons) == ['circle'] and reasons['circle'][0]['ranks'] == [0, 1], reasons)

    out, _ = Folder(tool).ranks(*exchange()).trace('--hang')
    require('Nothing hangs' in out, out)


def check_hostile(tool):
    """No bytes crash it: it ends by itself, with one of its own exit statuses."""
    seed = random.randrange(1 << 32)
    print(f'seed {seed}')
    rng = random.Random(seed)
    first, second = exchange()
    waits = [t.operation(t.WAIT, 1, -1, enqueued=1, armed=1, flags=t.TERMS)]
    waits += [t.operation(0, i, 0, parent=1, signal=i, context=0, signals=2, flags=t.TERM)
              for i in (2, 3)]
    claims = [t.operation(t.CLAIM, 1, 0, 5, enqueued=1, armed=1, issued=1),
              t.operation(t.RECV, 2, 0, 5, enqueued=2, signals=1, flags=t.FOUND),
              t.operation(t.RECV, 3, 0, 5, enqueued=3, armed=3, signals=1, flags=t.FOUND),
              t.operation(t.RECV, 4, 0, 5, enqueued=4, armed=4, issued=4)]
    whole = [t.make(0, 2, first, counters=[t.counter(t.SEND, 1, 5, 10, 10)],
                    rounds=[(1, 1, 2)]), t.make(1, 2, second), t.make(1, 2, waits), t.make(1, 2, claims)]
    for turn in range(30):
        folder = Folder(tool)
        for content in (whole[0], whole[1 + turn % 3]):
            changed = bytearray(content)
            for _ in range(rng.randrange(12)):
                # Most of what matters is in the header and at the beginnings of tables.
                at = rng.randrange(1216) if rng.random() < 0.5 else rng.randrange(len(changed))
                changed[at] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
            if rng.random() < 0.1:
                del changed[rng.randrange(len(changed)):]
            folder.add(bytes(changed))
        out = folder.path / 'out'
        for arguments in ((f'--svg={out}.svg', f'--perfetto={out}'), ('--hang', '--json')):
            _, err = folder.trace(*arguments, status=(0, 1, 2))
            require('Sanitizer' not in err and 'runtime error' not in err, err)


# What each mistake of hang.c is to be told of: the kind of the reason, its ranks, and words of its sentence.
MISTAKES = {
    'circle': ('circle', [0, 2, 1], 'rank 2 has called the send, but its stream is not past the receive '
               'of tag 4 from rank 1'),
    'join': ('circle', [0, 2, 2, 1, 1, 0], 'rank 2 waits in its baton_stream_wait: it waits for the receive of tag 4 '
             'from rank 1, which has not ended'),
    'tag': ('absent', [2, 0], 'rank 2 waits in its receive of tag 7 from rank 0: '
            'rank 0 has sent tag 6 twice and tag 7 never'),
    'probe': ('program', [2], 'rank 2 has found tag 5 of rank 0 by a probe and not received it'),
    'signal': ('absent', [1, 0], 'rank 0 has given signal 3 once, and this is the wait for its unit 2'),
}


def require_reason(mistake, moment):
    kind, ranks, words = MISTAKES[mistake]
    found = [reason for reason in moment['reasons'] if reason['kind'] == kind and
             reason['ranks'] == ranks and words in reason['sentence']]
    require(len(found) == 1, f'{mistake}: {moment}')
    for waiting in moment['waiting']:
        require(waiting['site'].startswith('hang+0x'), waiting)


def start_ranks(count, folder, *command):
    """Processes without MPI that record to the folder."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    return [subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count),
                                      LOCAL_RANK=str(rank), MASTER_ADDR='127.0.0.1',
                                      BATON_PORT=str(port), BATON_TRACE=str(folder),
                                      BATON_SECRET='sixteen_letters_or_more'))
            for rank in range(count)]


def check_recorded(tool):
    """Of the sample hello: each rank fills a buffer by a function, sends it, and receives one."""
    folder = Folder(tool)
    for process in start_ranks(2, folder.path, tool.program):
        process.communicate()
        require(process.returncode == 0, f'hello ends with {process.returncode}')
    report = folder.report()
    require(report['matched']['messages'] == 2 and report['checks'] == [], report)
    require([one['closed'] for one in report['files']] == [True, True], report)
    for stream in report['streams']:
        require(stream['computing_ns'] > 0 and stream['waiting_ns'] > 0, stream)
    for rank in report['ranks']:
        require(rank['bytes_sent'] == 4 << 20 and rank['messages_sent'] == 1, rank)
    events = json.loads(folder.written('perfetto'))['traceEvents']
    sites = {event['args']['site'].split('+')[0] for event in events if event['ph'] == 'X'}
    require(sites == {'hello'}, sites)
    require('Nothing hangs' in folder.trace('--hang')[0], 'it hangs')


def check_device(tool):
    """Of the sample host_poll, over the device and transport of the environment."""
    folder = Folder(tool)
    for process in start_ranks(2, folder.path, tool.program, '--messages', '64'):
        said = process.communicate()[0]
        require(process.returncode == 0, f'host_poll ends with {process.returncode}: {said}')
    report = folder.report()
    require(report['checks'] == [], report['checks'])
    require([rank['rank'] for rank in report['ranks']] == [0, 1], report)
    sent = sum(rank['messages_sent'] for rank in report['ranks'])
    require(report['matched']['messages'] == sent >= 3 * 2 * 64, report['matched'])
    require('Nothing hangs' in folder.trace('--hang')[0], 'it hangs')


def check_conforms(tool):
    """Of cases of the conformance suite, which hold with a trace as without; their files can be read."""
    folder = Folder(tool)
    ran = subprocess.run([tool.program, '--ranks', '3', 'streams.', 'plan.'], text=True,
                         capture_output=True, timeout=60,
                         env=dict(os.environ, BATON_TRACE=str(folder.path), BATON_LOG='none',
                                  BATON_TRACE_OPERATIONS='256', CONFORM_SHORT='1'))
    require(ran.returncode == 0 and ' 0 failed' in ran.stdout, f'{ran.returncode}: {ran.stdout[-2000:]}')
    for arguments in ((), ('--hang',)):
        folder.report(*arguments, status=(0, 1))


def check_killed(tool):
    """Of processes that hang: while they run, and when nothing but their files is left of them."""
    for mistake in MISTAKES:
        folder = Folder(tool)
        ranks = start_ranks(3, folder.path, tool.program, mistake, 'pause')
        for rank, process in enumerate(ranks):
            line = process.stdout.readline()
            require(line == f'rank {rank} hangs\n', line)
        try:
            report = folder.report('--hang', status=1)
            require('3 of 3 ranks still run' in sentences(report), report)
            require_reason(mistake, report['moments'][-1])
            # Nothing happens any more, and the time counts.
            later = folder.report('--hang', status=1)['moments'][-1]
            for before, head in zip(report['moments'][-1]['waiting'], later['waiting']):
                require(head['running'] and head['waited_ns'] > before['waited_ns'], later)
            require('at least' not in folder.trace('--hang', status=1)[0], 'at least')
        finally:
            for process in ranks:
                process.kill()
                process.communicate()
        report = folder.report('--hang', status=1)
        require('3 of 3 ranks have ended without destroying it' in sentences(report), report)
        require(report['moments'][-1]['when'] == 'end', report)
        require_reason(mistake, report['moments'][-1])
        if mistake == 'circle':
            sentence = report['moments'][-1]['reasons'][0]['sentence']
            require(sentence.count('(its process has ended)') == 3, report)


def check_ended(tool):
    """Of ranks that are threads, and whose operations ended early, or not at all."""
    for end, when in (('deadline', 'deadline'), ('abort', 'break'), ('leave', 'end')):
        for mistake in MISTAKES:
            folder = Folder(tool)
            subprocess.run([tool.program, mistake, end], check=True, timeout=60,
                           env=dict(os.environ, BATON_TRACE=str(folder.path)))
            moment = folder.report('--hang', status=1)['moments'][0]
            require(moment['when'] == when, moment)
            require_reason(mistake, moment)


def check_bad_arguments(tool):
    for arguments, words in ((('.', '--from=-1'), '--from takes milliseconds, 0 or more, not "-1"'),
                             (('.', '--from=x'), 'not "x"'),
                             (('.', '--from=3', '--to=2'), '--to must be later than --from'),
                             (('.', '--to=0'), '--to must be later than --from'),
                             (('.', '--run=-1'), '--run takes the hexadecimal number'),
                             (('.', '--run=00000000000000001'), '--run takes the hexadecimal number'),
                             (('.', '--run=xyz'), '--run takes the hexadecimal number'),
                             (('.', '--hang', '--svg=x'), '--hang says, and draws nothing'),
                             (('.', '--svg=x', '--perfetto=x'), '--perfetto and --svg are both "x"'),
                             ((), 'no folder is given'),
                             (('.', '..'), 'one folder is allowed, and ".." is another')):
        _, err = tool.run('trace', *arguments, status=64)
        require(words in err, err)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--baton', required=True)
    parser.add_argument('--program')
    parser.add_argument('case')
    arguments = parser.parse_args()
    tool = Tool(arguments.baton, 'alone', '')
    tool.program = arguments.program
    try:
        globals()[f'check_{arguments.case}'](tool)
    except Failure as failure:
        print(f'FAILED: {failure}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
