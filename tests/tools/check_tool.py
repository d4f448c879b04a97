#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_tool.py --baton FILE --world alone|mpi|near [--launcher COMMAND] CASE

Run the command baton as people do, and look at what it prints: text, JSON, exit status.
CASE is one of the functions check_* below.  The environment says which device and transport.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failure(Exception):
    pass


def require(true, what):
    if not true:
        raise Failure(what)


class Tool:
    def __init__(self, baton, world, launcher):
        self.baton, self.world = baton, world
        self.launcher = launcher.split()
        self.ranks = 1 if world == 'alone' else 2

    def run_pair(self, arguments, environment):
        """Two processes without MPI; the last is rank 0's, whose output is returned."""
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        processes = []
        for rank in (1, 0):
            mine = dict(environment, RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank),
                        MASTER_ADDR='127.0.0.1', BATON_PORT=str(port),
                        BATON_SECRET='sixteen_letters_or_more')
            processes.append(subprocess.Popen([self.baton, *arguments], env=mine, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        outputs = [process.communicate() for process in processes]
        require(outputs[0][0] == '', f'rank 1 prints: {outputs[0][0]}')
        require(processes[0].returncode == 0, f'rank 1 ends with {processes[0].returncode}: '
                                              f'{outputs[0][1]}')
        return processes[1].returncode, *outputs[1]

    def run(self, *arguments, status=0, **changes):
        """The standard output and error of the command."""
        environment = {**os.environ, **changes}
        if self.world == 'near':
            code, out, err = self.run_pair(arguments, environment)
        else:
            done = subprocess.run([*self.launcher, self.baton, *arguments], env=environment,
                                  text=True, capture_output=True, check=False)
            code, out, err = done.returncode, done.stdout, done.stderr
        print(f'== baton {" ".join(arguments)}: {code}\n{out}{err}')
        require(code == status, f'exit status {code}, not {status}')
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


def check_arguments(tool):
    for arguments, sentence in (
            ((), 'no command is given; it is one of: info'),
            (('perv',), 'there is no command "perv"; it is one of: info'),
            (('--perv',), "unrecognized option '--perv'"),
            (('info', '--perv'), "unrecognized option '--perv'"),
            (('info', 'perv'), '"perv" is no option'),
            (('info', '--json=yes'), "option '--json' doesn't allow an argument")):
        out, err = tool.run(*arguments, status=64)
        require(out == '' and sentence in err and '--help' in err, err)
    for arguments in (('--help',), ('info', '--help')):
        out, err = tool.run(*arguments)
        require(out.startswith('Usage: baton') and err == '', out)
    out, _ = tool.run('--version')
    require(out.startswith('baton 0.'), out)


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


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--baton', required=True)
    parser.add_argument('--world', choices=('alone', 'mpi', 'near'), default='alone')
    parser.add_argument('--launcher', default='')
    parser.add_argument('case')
    arguments = parser.parse_args()
    tool = Tool(arguments.baton, arguments.world, arguments.launcher)
    try:
        globals()[f'check_{arguments.case}'](tool)
    except Failure as failure:
        print(f'FAILED: {failure}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
