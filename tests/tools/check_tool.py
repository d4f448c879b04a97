#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_tool.py --baton FILE --world alone|mpi|near [--launcher COMMAND] CASE

Run the command baton as people do, and look at what it prints: text, JSON, exit status.
CASE is one of the functions check_* below.  The environment says which device and transport.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failure(Exception):
    pass


def require(true, what):
    if not true:
        raise Failure(what)


def deny(*calls):
    """To be run in a child: the kernel refuses these system calls from here on, by a filter (seccomp)."""
    numbers = {'x86_64': {'process_vm_readv': 310, 'pidfd_open': 434},
               'aarch64': {'process_vm_readv': 270, 'pidfd_open': 434}}
    if platform.machine() not in numbers:
        print(f'SKIP: no numbers of system calls of {platform.machine()}')
        sys.exit(77)

    class Instruction(ctypes.Structure):
        _fields_ = [('code', ctypes.c_uint16), ('yes', ctypes.c_uint8), ('no', ctypes.c_uint8),
                    ('k', ctypes.c_uint32)]

    class Program(ctypes.Structure):
        _fields_ = [('length', ctypes.c_uint16), ('filter', ctypes.POINTER(Instruction))]

    code = [(0x20, 0, 0, 0)]  # the number
    for call in calls:
        code += [(0x15, 0, 1, numbers[platform.machine()][call]), (0x06, 0, 0, 0x00050001)]
    code += [(0x06, 0, 0, 0x7fff0000)]
    program = (Instruction * len(code))(*(Instruction(*line) for line in code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    whole = Program(len(code), program)

    def apply():
        # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, ctypes.byref(whole), 0, 0) != 0:
            os._exit(77)
    return apply


class Tool:
    def __init__(self, baton, world, launcher):
        self.baton, self.world = baton, world
        self.launcher = launcher.split()
        self.code = None  # the exit status of the last run
        self.ranks = 1 if world == 'alone' else 2

    def start_pair(self, arguments, environment=os.environ, others=None, others_changes=None):
        """Two processes without MPI, by rank.  others, others_changes: of rank 1."""
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        processes = []
        for rank in (0, 1):
            mine = dict(environment, RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank),
                        MASTER_ADDR='127.0.0.1', BATON_PORT=str(port),
                        BATON_SECRET='sixteen_letters_or_more')
            if rank == 1:
                mine.update(others_changes or {})
                arguments = others or arguments
            processes.append(subprocess.Popen([self.baton, *arguments], env=mine, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return processes

    def run_pair(self, *arguments):
        """Exit status and output of rank 0."""
        processes = self.start_pair(*arguments)
        outputs = [process.communicate() for process in processes]
        require(outputs[1][0] == '', f'rank 1 prints: {outputs[1][0]}')
        require(processes[1].returncode == 0, f'rank 1 ends with {processes[1].returncode}: '
                                              f'{outputs[1][1]}')
        return processes[0].returncode, *outputs[0]

    def run(self, *arguments, status=0, before=None, others=None, others_changes=None, **changes):
        """The standard output and error of the command.  status: what is allowed, or a tuple of these.  others: the
        arguments of rank 1, in the world near, and what its environment has beside."""
        environment = {**os.environ, **changes}
        if self.world == 'near':
            code, out, err = self.run_pair(arguments, environment, others, others_changes)
        else:
            done = subprocess.run([*self.launcher, self.baton, *arguments], env=environment,
                                  text=True, capture_output=True, check=False,
                                  preexec_fn=before)
            code, out, err = done.returncode, done.stdout, done.stderr
        print(f'== baton {" ".join(arguments)}: {code}\n{out}{err}')
        allowed = status if isinstance(status, tuple) else (status,)
        self.code = code
        require(code in allowed, f'exit status {code}, not {allowed}')
        return out, err


def known_variables():
    """The names in the table of semantics.md."""
    text = (ROOT / 'docs/semantics.md').read_text(encoding='utf-8')
    text = text.split('\n## Environment variables\n')[1].split('\n## ')[0]
    names = [line.split('`')[1] for line in text.split('\n') if line.startswith('| `BATON_')]
    require(len(names) > 15, f'semantics.md has {names}')
    return names


def check_variables(variables):
    require([v['name'] for v in variables] == known_variables(),
            'not the variables of semantics.md')
    for variable in variables:
        given = os.environ.get(variable['name'])
        if variable['name'] == 'BATON_LOG':
            require(variable['source'] == 'refused' and variable['value'] == 'warning', variable)
        elif variable['name'] == 'BATON_SECRET' and variable['source'] == 'environment':
            require(variable['value'] == '(not shown)', variable)
        elif given:
            require(variable['source'] == 'environment' and variable['value'] == given, variable)
        elif variable['name'] != 'BATON_PORT':
            require(variable['source'] == 'not set' and
                    variable['value'] == variable['default'], variable)
        require(variable['values'] and variable['meaning'], variable)


def check_libraries(tree):
    by_name = {library['name']: library for library in tree['libraries']}
    require(list(by_name) == ['Baton', 'MPI', 'CUDA driver', 'NCCL', 'NVTX'], by_name)
    for library in by_name.values():
        require(library['version'] or library['why_not'], library)
    require('libbaton' in by_name['Baton']['path'], by_name['Baton'])
    if 'cudasim' in os.environ.get('BATON_CUDA_LIBRARY', ''):
        require('cudasim' in by_name['CUDA driver']['path'], by_name['CUDA driver'])
        require([gpu['reaches'] for gpu in tree['devices']] == [[1], [0]], tree['devices'])
    else:
        require(tree['devices'] == [] or not by_name['CUDA driver']['why_not'], tree['devices'])
    if 'ncclsim' in os.environ.get('BATON_NCCL_LIBRARY', ''):
        require('ncclsim' in by_name['NCCL']['path'], by_name['NCCL'])


def check_ranks(tool, ranks):
    device = os.environ.get('BATON_DEVICE', 'host')
    transport = os.environ.get('BATON_TRANSPORT')
    if not transport:
        transport = {'alone': 'local', 'mpi': 'mpi', 'near': 'near'}[tool.world]
        if tool.world == 'near' and device == 'cuda':
            transport = 'nccl'
    require([rank['rank'] for rank in ranks] == list(range(tool.ranks)), ranks)
    for rank in ranks:
        require(rank['ranks'] == tool.ranks and rank['device'] == device and
                rank['transport'] == transport, rank)
        message = transport if transport in ('local', 'nccl') else 'near'
        require(rank['messages'] == [message] * tool.ranks, rank['messages'])
        require(rank['puts'] == ['direct'] * tool.ranks, rank['puts'])
    require(len({rank['process'] for rank in ranks}) == tool.ranks, ranks)


def check_info(tool):
    out, err = tool.run('info', '--json', BATON_LOG='loud')
    require('BATON_LOG is "loud"' in err, 'no warning about BATON_LOG')
    tree = json.loads(out)
    check_libraries(tree)
    check_ranks(tool, tree['ranks'])
    require(tree['ranks_missing'] == '', tree['ranks_missing'])
    check_variables(tree['variables'])

    out, _ = tool.run('info')
    for name in ('Baton', 'GPUs', 'Communicator of all', *known_variables()):
        require(out.count(f'\n{name}') + out.count(f'  {name} ') + out.startswith(name) == 1,
                f'{name} is there {out.count(name)} times')
    require('sixteen_letters' not in out, 'the secret is shown')
    path = tree['ranks'][0]['messages'][0]
    require(('Paths from' in out) == (tool.ranks > 1), 'the matrix')
    require(out.count(f'{path}/direct') == (4 if tool.ranks > 1 else 0), 'the matrix')


# ---- doctor ----

LEVELS = ('good', 'slow', 'broken')
EVERYWHERE = ['locked memory', '/dev/shm', 'shared memory', 'process_vm_readv', 'pidfd', 'clock',
              'communicator', 'MPI', 'progress', 'side channel', 'CUDA driver', 'NCCL']
# What the machine that runs the test decides: no more than that they are there.
OF_THE_MACHINE = ('locked memory', '/dev/shm', 'process_vm_readv', 'clock')


def diagnose(tool, **changes):
    """The findings by name, of a report that agrees with itself."""
    out, _ = tool.run('doctor', '--json', status=(0, 1, 2), **changes)
    report = json.loads(out)
    findings = report['findings']
    require(report['ranks'] == tool.ranks and report['ranks_missing'] == '', report)
    worst = max(LEVELS.index(finding['level']) for finding in findings)
    require(report['status'] == worst and report['verdict'] == LEVELS[worst], report)
    require(tool.code == worst, f'exit status {tool.code} with {report}')
    for finding in findings:
        require(finding['found'] and set(finding['ranks']) <= set(range(tool.ranks)), finding)
        bad = finding['level'] != 'good'
        require(bool(finding['costs']) == bad and bool(finding['mend']) == bad, finding)
    by_name = {finding['name']: finding for finding in findings}
    require([name for name in by_name if name in EVERYWHERE] == EVERYWHERE, list(by_name))
    return by_name


def check_doctor(tool):
    findings = diagnose(tool)
    for name, finding in findings.items():
        if name not in OF_THE_MACHINE:
            require(finding['level'] == 'good' and finding['ranks'] == list(range(tool.ranks)),
                    finding)
    if 'cudasim' in os.environ.get('BATON_CUDA_LIBRARY', ''):
        require(len([name for name in findings if name.startswith('GPU ')]) == 6, findings)
    if 'ncclsim' in os.environ.get('BATON_NCCL_LIBRARY', ''):
        require('two communicators come up' in findings['NCCL']['found'], findings['NCCL'])
    if tool.ranks > 1:
        require('connect by TCP' in findings['side channel']['found'], findings['side channel'])
    out, _ = tool.run('doctor', status=(0, 1))
    lines = out.strip().split('\n')
    require(len(lines) >= len(EVERYWHERE) + 1 and lines[-1].endswith(f'on {tool.ranks} ranks' if
            tool.ranks > 1 else 'on 1 rank'), lines)
    for line in lines[:-1]:
        require(line.split()[0] in LEVELS, line)


def check_sick(tool):
    """Each thing that can be spoilt here is found, with what it costs and what mends it."""
    finding = diagnose(tool, before=deny('process_vm_readv'))['process_vm_readv']
    require(finding['level'] == 'slow' and 'ptrace_scope=0' in finding['mend'], finding)
    finding = diagnose(tool, before=deny('pidfd_open'))['pidfd']
    require(finding['level'] == 'broken' and 'pidfd_open' in finding['mend'], finding)
    finding = diagnose(tool, BATON_PUTS='nobody')['environment']
    require(finding['level'] == 'slow' and 'auto, engine' in finding['mend'], finding)
    finding = diagnose(tool, BATON_DEVICE='cuda', BATON_CUDA_LIBRARY='/nowhere')['communicator']
    require(finding['level'] == 'broken' and '/nowhere' in finding['found'], finding)
    finding = diagnose(tool, BATON_INTERFACE='nosuch0')['side channel']
    require(finding['level'] == 'slow' and 'BATON_INTERFACE is "nosuch0"' in finding['found'], finding)
    finding = diagnose(tool, BATON_SECRET='short')['environment']
    require(finding['level'] == 'slow' and 'BATON_SECRET has 5 characters' in finding['found'] and
            '16 to 4095' in finding['mend'], finding)
    finding = diagnose(tool, BATON_TRACE='/nowhere/it')['environment']
    require(finding['level'] == 'slow' and 'BATON_TRACE is /nowhere/it: No such file' in finding['found'], finding)
    with tempfile.TemporaryDirectory() as folder:
        require('environment' not in diagnose(tool, BATON_SECRET='x' * 16, BATON_TRACE=folder), 'what can be used')
    out, _ = tool.run('doctor', status=1, BATON_INTERFACE='nosuch0')
    require('. Costs: ' in out and '. Mend: ' in out, out)


def check_sick_gpu(tool):
    """The driver refuses one call; BATON_DEVICE is the host, so that it is the doctor's own."""
    for call, name in (('cuMemCreate', 'virtual memory'),
                       ('cuMemHostRegister', 'host registration')):
        finding = diagnose(tool, CUDASIM_FAIL=f'{call}:1:801', BATON_DEVICE='host',
                           CUDASIM_DEVICES='1', BATON_NCCL_LIBRARY='/nowhere')[f'GPU 0, {name}']
        require(finding['level'] == 'slow' and f'{call} fails' in finding['found'], finding)
    finding = diagnose(tool, BATON_NCCL_LIBRARY='/nowhere')['NCCL']
    require(finding['level'] == 'slow' and '/nowhere' in finding['found'], finding)


def check_refused(tool):
    """A device that is not there: all else is told, and the exit status says it."""
    nowhere = {'BATON_DEVICE': 'cuda', 'BATON_CUDA_LIBRARY': '/nowhere/libcuda.so'}
    out, _ = tool.run('info', '--json', status=2, **nowhere)
    ranks = json.loads(out)['ranks']
    require(len(ranks) == tool.ranks, ranks)
    for rank in ranks:
        require('/nowhere/libcuda.so' in rank['refused'], rank)
    out, _ = tool.run('info', status=2, **nowhere)
    require('refused: ' in out and 'BATON_STAGING_CHUNK ' in out, 'the text')
    # A rank that no rank 0 hears says so itself.
    if tool.world == 'alone':
        for command in ('info', 'doctor'):
            out, err = tool.run(command, status=2, RANK='5', WORLD_SIZE='2')
            require(out == '' and f'baton {command}: rank 5 cannot report to rank 0: RANK is "5"' in err, err)


def meddle(call):
    """What has this call of Baton's do something else (meddle.c)."""
    return {'LD_PRELOAD': os.environ['MEDDLE_LIBRARY'], 'MEDDLE': call}


def check_cut_off(tool):
    """A rank whose report rank 0 cannot have says so."""
    processes = tool.start_pair(('info',), others_changes=meddle('baton_send'))
    outputs = [process.communicate() for process in processes]
    require(processes[1].returncode == 2, outputs)
    require('baton info: rank 1 cannot report to rank 0: ' in outputs[1][1], outputs)
    require(processes[0].returncode == 2 and 'ranks are missing' in outputs[0][0], outputs)
    # Rank 0 ends once it has all reports, before it has printed.
    for command in ('info', 'doctor'):
        processes = tool.start_pair((command, '--json'), {**os.environ, **meddle('json_dumpf')},
                                    others_changes={'MEDDLE': ''})
        outputs = [process.communicate() for process in processes]
        require([process.returncode for process in processes] == [9, 2], outputs)
        require(f'baton {command}: rank 1 cannot report to rank 0: ' in outputs[1][1], outputs)


def check_not_met(tool):
    """A rank whose peer never comes to MPI's start ends by itself."""
    late = [f'{name}={value}' for name, value in meddle('alarm').items()]
    command = tool.launcher[0], '-np', '1', tool.baton, 'info', '--help', ':', '-np', '1', 'env', *late, tool.baton, 'info'
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    print(f'{done.stdout}{done.stderr}')
    require(done.returncode != 0, f'exit status {done.returncode}')
    # Another launcher may end the job by itself, as a rank has ended that never came to MPI's start.
    version = subprocess.run([tool.launcher[0], '--version'], text=True, capture_output=True, check=False).stdout
    require('(Open MPI) 4.' not in version or 'baton: rank 1: the ranks have not met in 120 s' in done.stderr, done.stderr)


def check_arguments(tool):
    for arguments, sentence in (
            ((), 'no command is given; it is one of: info, doctor'),
            (('perv',), 'there is no command "perv"; it is one of: info, doctor'),
            (('--perv',), "unrecognized option '--perv'"),
            (('info', '--perv'), "unrecognized option '--perv'"),
            (('info', 'perv'), '"perv" is no option'),
            (('doctor', '--perv'), "unrecognized option '--perv'"),
            (('doctor', 'perv'), '"perv" is no option'),
            (('info', '--json=yes'), "option '--json' doesn't allow an argument")):
        out, err = tool.run(*arguments, status=64)
        require(out == '' and sentence in err and '--help' in err, err)
    for arguments in (('--help',), ('info', '--help'), ('doctor', '--help'),
                      ('perf', '--help')):
        out, err = tool.run(*arguments)
        require(out.startswith('Usage: baton') and err == '', out)
    out, _ = tool.run('--version')
    require(out.startswith('baton 0.'), out)
    # Where nothing can be written the status says so, also of the help; and a closed standard output is not the
    # descriptor of something else.
    for arguments in (('info',), ('info', '--json'), ('--help',), ('perf', '--help'), ('--version',)):
        for to in ('>/dev/full', '>&-'):
            done = subprocess.run(['sh', '-c', f'exec "$0" "$@" {to}', tool.baton, *arguments], text=True,
                                  stderr=subprocess.PIPE, check=False)
            require(done.returncode == 2 and 'baton: ' in done.stderr and 'report' in done.stderr,
                    f'{arguments} {to}: {done}')


def check_quiet(tool):
    """Of ranks that Open MPI has started alike one prints what is wrong with the arguments, and the help."""
    told = subprocess.run([*tool.launcher, 'sh', '-c', 'echo $OMPI_NUM_APP_CTX'], text=True, capture_output=True,
                          check=True)
    if not told.stdout.strip():
        print('SKIP: this MPI does not tell ranks that they were started alike')
        sys.exit(77)
    for arguments in (('perf', '-b', 'x'), ('trace',), ('info', 'x'), ('bogus',)):
        _, err = tool.run(*arguments, status=64)
        require(err.count('Try `baton') == 1, err)
    out, _ = tool.run('perf', '--help')
    require(out.count('Usage: ') == 1, out)
    _, err = tool.run('trace', '/nowhere', status=2)
    require(err.count('/nowhere cannot be read') == 1, err)
    # Rank 0 ends with 0, so the launcher ends no other.
    _, err = tool.run('trace', '--help')
    require(err.count('baton trace: rank 1 of a job: rank 0 reads') == 1, err)


def complete(*words):
    """What bash offers for the last word."""
    script = ROOT / 'tools/baton.bash'
    line = ' '.join(f"'{word}'" for word in words)
    done = subprocess.run(['bash', '-c', f'source {script}; COMP_WORDS=({line}); '
                           f'COMP_CWORD={len(words) - 1}; _baton; '
                           'printf "%s\\n" "${COMPREPLY[@]}"'],
                          text=True, capture_output=True, check=True)
    return done.stdout.split()


def check_completion(tool):
    """Every command and option of the help is offered, and no other."""
    usage, _ = tool.run('--help')
    commands = [line.split()[0] for line in usage.split('Commands:\n')[1].split('\n\n')[0]
                .split('\n') if line.startswith('  ') and line[2] != ' ']
    require('info' in commands, commands)
    offered = complete('baton', '')
    require([word for word in offered if not word.startswith('-')] == commands, offered)
    require(complete('baton', 'inf') == ['info'], complete('baton', 'inf'))
    for command in commands:
        out, _ = tool.run(command, '--help')
        offered = complete('baton', command, '--')
        require('--json' in offered, offered)
        for option in offered:
            require(option in out, f'{option} of {command}')


def main(cases):
    parser = argparse.ArgumentParser(usage=cases['__doc__'])
    parser.add_argument('--baton', required=True)
    parser.add_argument('--world', choices=('alone', 'mpi', 'near'), default='alone')
    parser.add_argument('--launcher', default='')
    parser.add_argument('case')
    arguments = parser.parse_args()
    tool = Tool(arguments.baton, arguments.world, arguments.launcher)
    try:
        cases[f'check_{arguments.case}'](tool)
    except Failure as failure:
        print(f'FAILED: {failure}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(globals()))
