#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_perf.py --baton FILE --world alone|mpi|near [--launcher COMMAND] CASE

Run `baton perf` as people do, with few rounds, and look at its report: JSON, table, CSV, picture.  No time is looked at but
for whether the report agrees with itself.  CASE is one of the functions check_* below.
"""
import csv
import io
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import xml.etree.ElementTree

from check_tool import complete, main, meddle, require

PAIRS = ['latency', 'bandwidth', 'rate', 'put', 'puts', 'overlap']
TESTS = ['latency', 'bandwidth', 'rate', 'put', 'puts', 'ring', 'alltoall', 'overlap']
# Few rounds; an odd size, and one that goes in pieces.
FEW = ('-n', '4', '-b', '7', '-e', '70001', '-f', '100')
SIZES = [7, 700, 70000]


def close(one, other):
    return math.isclose(one, other, rel_tol=1e-6)


def check_row(row, ranks):
    require(0 <= row['shared_processor'] <= 1, row)
    require(row['failed'] == [] and row['wrong'] == 0 and row['iterations'] == 4, row)
    require(0 < row['us_min'] <= row['us'] <= row['us_max'], row)
    each = ranks - 1 if row['test'] == 'alltoall' else 1
    require(close(row['messages_per_us'] * row['us'], each), row)
    require(close(row['gbytes_per_s'] * row['us'] * 1e3, each * row['bytes']), row)
    require(row['window'] == 64, row)
    if row['test'] == 'overlap':
        require(0 <= row['hidden'] <= 1 and row['transfer_us'] > 0 and row['compute_us'] > 0, row)


def expected_transport(tool):
    transport = os.environ.get('BATON_TRANSPORT')
    if transport:
        return transport
    if tool.world == 'near' and os.environ.get('BATON_DEVICE') == 'cuda':
        return 'nccl'
    return {'alone': 'local', 'mpi': 'mpi', 'near': 'near'}[tool.world]


def measure(tool, *arguments, **changes):
    """The report as JSON, which is alike for every run but for its times."""
    out, _ = tool.run('perf', *arguments, '--json', **changes)
    report = json.loads(out)
    require(report['ranks_missing'] == '' and report['left_out'] == [], report)
    return report


def check_perf(tool):
    report = measure(tool, *FEW)
    require(report['ranks'] == 2 and report['threads'] == (tool.world == 'alone'), report)
    require(report['device'] == os.environ.get('BATON_DEVICE', 'host'), report)
    require(report['transport'] == expected_transport(tool), report)
    rows = report['rows']
    require([(row['test'], row['bytes']) for row in rows] ==
            [(test, size) for test in TESTS for size in SIZES], rows)
    for row in rows:
        check_row(row, 2)

    out, err = tool.run('perf', *FEW, 'latency', 'ring')
    lines = out.strip().split('\n')
    table = [line.split() for line in lines if not line.startswith('#')]
    require([int(line[0]) for line in table] == 2 * SIZES, table)
    require(all(line[1] == '4' and line[-1] == '0' for line in table), table)
    require('# latency: ' in out and '# ring: ' in out and '# put: ' not in out, out)
    require(('threads of this process' in out) == (tool.world == 'alone'), out)
    require('\r' not in err, 'progress in a pipe')

    out, _ = tool.run('perf', *FEW, 'overlap', 'alltoall', '--csv', '--no-check')
    rows = list(csv.DictReader(io.StringIO(out)))
    require([(row['test'], int(row['bytes'])) for row in rows] ==
            [(test, size) for test in ('alltoall', 'overlap') for size in SIZES], rows)
    for row in rows:
        require(float(row['us']) > 0 and row['wrong'] == '' and
                (row['hidden'] != '') == (row['test'] == 'overlap'), row)
    if tool.world == 'alone':
        more_ranks(tool)


def more_ranks(tool):
    """Threads: pairs, and a rank without a peer."""
    if os.environ.get('BATON_DEVICE') == 'cuda':
        return
    for ranks in (3, 4):
        report = measure(tool, *FEW, '--ranks', str(ranks))
        require(report['ranks'] == ranks and report['pairs'] == ranks // 2, report)
        require(len(report['rows']) == len(TESTS) * len(SIZES), report)
        for row in report['rows']:
            check_row(row, ranks)
    out, _ = tool.run('perf', *FEW, '--ranks', '3', 'latency')
    require('the last has no peer' in out, out)


def check_paths(tool):
    """What --path, --memory and --window ask for; time as the limit; a window that has no room for 64."""
    rows = measure(tool, 'put', 'puts', '-n', '2', '-b', '9K', '-e', '9K', '--path', 'vmwrite',
                   '--memory', 'heap')['rows']
    require([row['bytes'] for row in rows] == [9216, 9216], rows)
    rows = measure(tool, 'latency', 'put', '-n', '2', '-b', '9K', '-e', '9K', '--memory', 'block',
                   '--path', 'message')['rows']
    require(len(rows) == 2, rows)
    rows = measure(tool, 'bandwidth', '-t', '0.01', '-b', '16M', '-e', '16M')['rows']
    require(rows[0]['window'] == 4 and rows[0]['iterations'] >= 1, rows)
    rows = measure(tool, 'rate', '-t', '0.01', '-e', '1', '--window', '7', '-w', '0')['rows']
    require(rows[0]['window'] == 7 and rows[0]['bytes'] == 1, rows)
    # Both ranks say so, and it is said once.
    _, err = tool.run('perf', 'put', '-n', '1', '--path', 'native', status=2)
    require(err.count('BATON_WINDOW_PATH forces native') == 1 and
            'put of 8 bytes: baton_window_register: BATON_ERR_UNSUPPORTED: BATON_WINDOW_PATH' in err, err)


# ---- against others ----

def check_against_mpi(tool):
    for paths in ((), ('--path', 'mpi')):
        report = measure(tool, *FEW, '--against', 'mpi', *paths)
        require(report['against'] == 'MPI', report)
        require(report['messages'] == ('mpi' if paths else 'near'), report)
        for row in report['rows']:
            check_row(row, 2)
            require(close(row['us'] / row['raw_us'], row['ratio']), row)
            require(close(row['raw_gbytes_per_s'] * row['raw_us'],
                          row['gbytes_per_s'] * row['us']), row)
            require(('raw_hidden' in row) == (row['test'] == 'overlap'), row)
    out, _ = tool.run('perf', *FEW, '--against', 'mpi', 'latency', 'overlap')
    require(out.count('MPI us  ratio') == 2, out)
    _, err = tool.run('perf', *FEW, '--against', 'nccl', status=2)
    require('NCCL moves memory of GPUs alone' in err, err)
    _, err = tool.run('perf', *FEW, '--ranks', '2', status=64)
    require('--ranks is for a process alone; this job has 2' in err, err)


def check_against_nccl(tool):
    report = measure(tool, *FEW, '--against', 'nccl')
    require(report['against'] == 'NCCL' and report['transport'] == 'nccl', report)
    for row in report['rows']:
        check_row(row, 2)
        require(close(row['us'] / row['raw_us'], row['ratio']), row)
    _, err = tool.run('perf', *FEW, '--against', 'nccl', status=2,
                      BATON_NCCL_LIBRARY='/nowhere',
                      BATON_TRANSPORT='near' if tool.world == 'near' else 'auto')
    require('--against nccl: ' in err and '/nowhere' in err, err)


# ---- what goes wrong ----

def check_spoiled(tool):
    """A byte of each long message arrives wrong: it is counted, the rest goes on, and the status says it."""
    spoil = {'LD_PRELOAD': os.environ['SPOIL']}
    asked = ('perf', 'latency', 'ring', '-n', '4', '-b', '64', '-e', '64K', '-f', '1024')
    out, err = tool.run(*asked, '--json', status=(0, 2), **spoil)
    rows = json.loads(out)['rows']
    require([(row['test'], row['bytes']) for row in rows] ==
            [('latency', 64), ('latency', 65536), ('ring', 64), ('ring', 65536)], rows)
    out, err = tool.run(*asked, status=(0, 2), **spoil)
    if '65536 bytes' not in err and 'process_vm_readv' in tool.run('info')[0]:
        print('SKIP: the kernel forbids process_vm_readv')
        sys.exit(77)
    require(tool.code == 2 and '65536 bytes: 4 bytes arrived wrong' in err, err)
    # Two of each rank: one behind the rounds that are timed, one behind the last.
    require([row['wrong'] for row in rows] == [0, 4, 0, 4], rows)
    out, _ = tool.run(*asked, '--no-check', **spoil)
    require(out.count('N/A') == 4, out)


def check_refused(tool):
    _, err = tool.run('perf', *FEW, '-d', 'cuda', status=2, BATON_CUDA_LIBRARY='/nowhere/libcuda.so')
    require('/nowhere/libcuda.so' in err, err)
    _, err = tool.run('perf', *FEW, '--transport', 'mpi', status=2)
    require("over mpi a communicator has 1 of the job's 2 ranks" in err or
            'this build of Baton has no MPI' in err, err)
    _, err = tool.run('perf', *FEW, '--against', 'mpi', status=2)
    require('--against mpi: ' in err, err)
    _, err = tool.run('perf', *FEW, '--transport', 'local', status=2)
    require('the local transport moves messages between threads of one process, and the 2 ranks of this job are '
            'processes' in err, err)
    _, err = tool.run('perf', *FEW, status=64, BATON_TRANSPORT='bogus')
    require('baton perf: BATON_TRANSPORT is "bogus"; it takes auto' in err, err)


def check_differ(tool):
    """Ranks that were started in different ways end at once, and rank 0 says why."""
    few = ('perf', 'latency', '-n', '2', '-b', '8', '-e', '8')
    for mine, theirs, sentence in (
            ((), ('put',), 'TEST is latency on rank 0, and latency, put on rank 1'),
            (('-f', '8'), (), '--factor is 8 on rank 0, and 4 on rank 1'),
            ((), ('-t', '7'), '--time is 0 on rank 0, and 7 on rank 1'),
            (('--no-check',), (), '--no-check is given on rank 0, and not given on rank 1'),
            ((), ('--ranks', '2'), '--ranks is the default on rank 0, and 2 on rank 1')):
        _, err = tool.run(*few, *mine, others=(*few, *theirs), status=64)
        require(f'baton perf: {sentence}; all ranks have to be started alike' in err, err)
    _, err = tool.run(*few, others=few, others_changes={'BATON_PUTS': 'foo'}, status=64)
    require('baton perf: rank 1: BATON_PUTS is "foo"; it takes auto, engine' in err, err)


def check_killed(tool):
    """Of two ranks one is killed behind the first of very many rows: the other one ends, and its status says that."""
    for victim in (0, 1):
        processes = tool.start_pair(('perf', '-t', '0.5', '-f', '2', '-b', '1', '-e', '1M'))
        while processes[0].stdout.readline().startswith('#'):
            pass
        processes[victim].kill()
        outputs = [process.communicate() for process in processes]
        require(processes[1 - victim].returncode == 2, processes[1 - victim].returncode)
        require(victim == 0 or 'baton perf: ranks are missing: ' in outputs[0][1], outputs)


def check_meddled(tool):
    """How an operation has ended is told, not what an earlier call was refused for; and who is not heard says so."""
    few = ('perf', 'latency', '-n', '2', '-b', '8', '-e', '8')
    _, err = tool.run(*few, status=2, **meddle('baton_finish'))
    require('latency: BATON_ERR_CANCELED: canceled\n' in err, err)
    # A report that cannot be read is no bad argument.
    _, err = tool.run(*few, others=few, others_changes=meddle('nothing'), status=2)
    require('baton perf: ranks are missing: what they were asked for cannot be read' in err, err)
    # Rank 0 ends once it is to receive the others' reports.
    processes = tool.start_pair(few, {**os.environ, **meddle('baton_recv')}, others_changes={'MEDDLE': ''})
    outputs = [process.communicate() for process in processes]
    require([process.returncode for process in processes] == [9, 2], outputs)
    require('baton perf: rank 1 cannot report to rank 0: ' in outputs[1][1], outputs)


def check_plot(tool):
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "it's.svg"
        _, err = tool.run('perf', *FEW, '--plot', str(file), status=2, PATH='/nowhere')
        require('--plot needs gnuplot' in err and not file.exists(), err)
        if not shutil.which('gnuplot'):
            print('SKIP: gnuplot is not installed')
            sys.exit(77)
        out, _ = tool.run('perf', *FEW, '--plot', str(file))
        require('# overlap' in out, out)
        text = file.read_text(encoding='utf-8')
        require(xml.etree.ElementTree.fromstring(text).tag.endswith('svg'), text)
        for test in TESTS:
            require(f'>{test}<' in text, f'{test} is not in the picture')
        _, err = tool.run('perf', *FEW, 'latency', '--plot', '/nowhere/it.svg', status=2)
        require('baton perf: gnuplot has not drawn /nowhere/it.svg: cannot open file; output not changed: No such file '
                'or directory\n' in err and err.count('\n') == 1, err)
        # One that ends before it has read, with words of its own.
        gnuplot = pathlib.Path(scratch) / 'gnuplot'
        for says, why in (('echo >&2; echo no display >&2; echo more >&2; exit 3', 'no display'),
                          ('exit 3', 'it ended with 3'), ('kill -9 $$', 'signal 9 ended it')):
            gnuplot.write_text(f'#!/bin/sh\n{says}\n', encoding='utf-8')
            gnuplot.chmod(0o755)
            _, err = tool.run('perf', *FEW, 'latency', '--plot', '/nowhere/it.svg', status=2,
                              PATH=f'{scratch}:{os.environ["PATH"]}')
            require(err == f'baton perf: gnuplot has not drawn /nowhere/it.svg: {why}\n', err)


def check_arguments(tool):
    for arguments, sentence in (
            (('latancy',), 'the test is "latancy"; it is one of: latency, bandwidth, rate, put'),
            (('-b', '0'), '--min-bytes is "0"; it is a number of bytes from 1 to 1G'),
            (('-b', '-3'), '--min-bytes is "-3"'),
            (('-e', '2G'), '--max-bytes is "2G"'),
            (('-e', '4KB'), '--max-bytes is "4KB"'),
            (('-e', '99999999999999999999'), '--max-bytes is "99999999999999999999"'),
            (('-b', '8', '-e', '4'), '--min-bytes is 8, more than --max-bytes, which is 4'),
            (('-f', '1'), '--factor is "1"; it is a number from 2 to 1024'),
            (('-n', '0'), '--iterations is "0"; it is a number from 1 to'),
            (('-w', 'x'), '--warmup is "x"; it is a number from 0 to'),
            (('-t', '0'), '--time is "0"; it is a number of seconds from 0.001 to 3600'),
            (('-t', 'nan'), '--time is "nan"'),
            (('--window', '1025'), '--window is "1025"; it is a number from 1 to 1024'),
            (('--ranks', '1'), '--ranks is "1"; it is a number from 2 to 64'),
            (('-d', 'gpu'), '--device is "gpu"; it is one of: host, cuda'),
            (('-T', 'tcp'), '--transport is "tcp"; it is one of: local, mpi, nccl, near'),
            (('-p', 'far'), '--path is "far"; it is one of: near, mpi, direct, vmwrite, message'),
            (('-p', 'mpi', '-p', 'near'), '--path is given twice for messages: mpi and near'),
            (('-p', 'direct', '-p', 'near', '-p', 'message'),
             '--path is given twice for puts: direct and message'),
            (('--memory', 'x'), '--memory is "x"; it is one of: heap, block'),
            (('--plot', ''), '--plot takes the name of a file'),
            (('--against', 'ucx'), '--against is "ucx"; it is one of: mpi, nccl'),
            (('--json', '--csv'), '--json and --csv are given; one is allowed'),
            (('--perv',), "unrecognized option '--perv'")):
        out, err = tool.run('perf', *arguments, status=64)
        require(out == '' and sentence in err and '--help' in err, err)
    # Of threads no message goes by near or MPI.
    for arguments, changes in ((('-p', 'mpi'), {}), (('-p', 'near'), {}), ((), {'BATON_MESSAGE_PATH': 'mpi'})):
        out, err = tool.run('perf', *FEW, 'latency', *arguments, status=2, **changes)
        require(out == '' and 'here they go by local, between threads of a process alone' in err, err)
    # A rank of a job that cannot be is no process alone.
    out, err = tool.run('perf', *FEW, status=2, RANK='0', WORLD_SIZE='2')
    require(out == '' and 'this is rank 0 of 2 processes' in err, err)
    # Every option of the help is completed.
    out, _ = tool.run('perf', '--help')
    words = {word.strip(',[').split('=')[0].split('[')[0] for line in out.split('\n')
             for word in line.split() if word.startswith('--')} - {'--version'}
    offered = set(complete('baton', 'perf', ''))
    require({word for word in offered if word.startswith('-')} >= words - {'--'}, words - offered)
    require({word for word in offered if not word.startswith('-')} == set(TESTS), offered)


if __name__ == '__main__':
    sys.exit(main(globals()))
