"""Wrappers of all kinds: Python scripts that have another one run, `wrapper.py SCRIPT ARGUMENTS…`."""

from __future__ import annotations

# What `conda run` does: it writes a shell script that activates an environment and runs the command, runs that with a
# copy of its own environment, and passes on the output when all is over.
CONDA = """
import os, shlex, subprocess, sys, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
    script.write(f'export PATH="{os.path.dirname(sys.executable)}:$PATH" CONDA_SHLVL=1\\n')
    script.write(f". /dev/null\\n{shlex.join([sys.executable, *sys.argv[1:]])}\\n")
    script.flush()
    environment = os.environ.copy()
    done = subprocess.run(["bash", script.name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
sys.stdout.write(done.stdout.decode())
sys.stderr.write(done.stderr.decode())
sys.exit(done.returncode)
"""
WRAPPERS = {
    "execv": "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
    "execve": "import os, sys\nos.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, 'X': '1'})",
    "subprocess": "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)",
    "subprocess with an environment": "import os, subprocess, sys\n"
    "sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env={**os.environ, 'X': '1'}).returncode)",
    "a shell between": "import os, shlex, sys\nos.execvp('sh', ['sh', '-c', "
    "shlex.join([sys.executable, *sys.argv[1:]]) + '; exit $?'])",
    "two of them": "import os, subprocess, sys\nif sys.argv[1] != '--second':\n"
    "    os.execv(sys.executable, [sys.executable, sys.argv[0], '--second', *sys.argv[1:]])\n"
    "sys.exit(subprocess.call([sys.executable, *sys.argv[2:]]))",
    "as conda run": CONDA,
    "runpy": "import runpy, sys\nsys.argv[:] = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')",
    "multiprocessing": "import multiprocessing, runpy, sys\ndef work(argv):\n    sys.argv[:] = argv\n"
    "    runpy.run_path(argv[0], run_name='__main__')\nif __name__ == '__main__':\n"
    "    process = multiprocessing.get_context('spawn').Process(target=work, args=(sys.argv[1:],))\n"
    "    process.start()\n    process.join()\n    sys.exit(process.exitcode)",
    "fork": "import os, runpy, sys\nsys.argv[:] = sys.argv[1:]\nif os.fork():\n"
    "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\nrunpy.run_path(sys.argv[0], run_name='__main__')",
}
