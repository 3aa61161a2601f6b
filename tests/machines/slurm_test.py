#!/usr/bin/env python3
"""A real Slurm on this machine tunes a plan as an array of shares; tasks are killed and requeued on the way. Needs root and Debian's
packages slurmctld, slurmd, slurm-client and munge; not part of ctest.

    tests/machines/slurm_test.py --nestor build/dev/bin/nestor --problems 60 --shares 4 --kills 3
    nice tests/machines/slurm_test.py --nestor build/dev/bin/nestor --problems 1000 --shares 4 --kills 6 --worker-kills 12 --kill-every 60
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = """ClusterName=nestor
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
ReturnToService=2
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
NodeName={host} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def free_port():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


class Slurm:
    """munged, slurmctld and slurmd with files of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        config = folder / "slurm.conf"
        config.write_text(CONFIG.format(host=host, port=free_port(), node_port=free_port(), folder=folder, cpus=os.cpu_count()))
        self.environment = {**os.environ, "SLURM_CONF": str(config)}
        self.munge_socket = folder / "munge" / "munge.socket"

    def start(self):
        key = self.folder / "munge" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        os.chmod(self.folder / "munge", 0o755)
        os.chmod(self.folder, 0o755)
        # Slurm finds munged by its usual socket.
        pathlib.Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
        self._start("munged", "--foreground", "--force", f"--key-file={key}", f"--pid-file={self.folder}/munge/munged.pid",
                    f"--log-file={self.folder}/munge/munged.log", f"--seed-file={self.folder}/munge/munged.seed")
        time.sleep(1)
        self._start("slurmctld", "-D", "-i")
        time.sleep(2)
        self._start("slurmd", "-D")
        for _ in range(60):
            state = self.run("sinfo", "-h", "-o", "%T").stdout.split()
            if "idle" in state:
                return
            time.sleep(1)
        raise SystemExit(f"the node is {state}: {(self.folder / 'slurmctld.log').read_text()[-2000:]}")

    def _start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "wb")
        self.processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True))

    def run(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def tasks_of(slurm, job):
    """{array task: its state} of those that are not finished."""
    lines = slurm.run("squeue", "-h", "-r", "-j", job, "-o", "%K %T").stdout.split("\n")
    return dict(line.split() for line in lines if line.strip())


def tuning_processes(work):
    """Processes of nestor tune whose database lies below `work`: the runs, and their workers."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) if words else 0
        except (OSError, IndexError):
            continue
        if b"tune" in words and any(word.startswith(os.fsencode(work)) for word in words):
            found.append((int(entry.name), parent))
    pids = {pid for pid, _ in found}
    return [pid for pid, parent in found if parent not in pids], [pid for pid, parent in found if parent in pids]


def kill_one(processes, values):
    """1 where there was one to kill."""
    try:
        os.kill(values.choice(processes), signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return 0
    return 1


def kill_some(slurm, job, args, work, values):
    """Kills runs with SIGKILL, after which their tasks are requeued, and workers of runs. Returns the numbers of kills, and of tasks requeued."""
    killed = {"kills": 0, "worker_kills": 0, "requeued": 0}
    next_kill = time.monotonic() + 2
    while (tasks := tasks_of(slurm, job)):
        time.sleep(0.5)
        if time.monotonic() >= next_kill:
            runs, workers = tuning_processes(work)
            done = 0
            if killed["kills"] < args.kills:
                done += kill_one(runs, values)
                killed["kills"] += done
            if killed["worker_kills"] < args.worker_kills:
                found = kill_one([worker for worker in workers if os.path.exists(f"/proc/{worker}")], values)
                killed["worker_kills"] += found
                done += found
            next_kill = time.monotonic() + (args.kill_every * values.uniform(0.5, 1.5) if done else 0)
        tasks = tasks_of(slurm, job)
        gone = [task for task in range(args.shares) if str(task) not in tasks]
        for task in gone:
            state = slurm.run("scontrol", "show", "job", f"{job}_{task}", "-o").stdout
            if "JobState=FAILED" in state and "ExitCode=0:0" not in state:
                slurm.run("scontrol", "requeue", f"{job}_{task}")
                killed["requeued"] += 1
    return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", required=True)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--shares", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3, help="runs to kill")
    parser.add_argument("--worker-kills", type=int, default=3, help="workers to kill")
    parser.add_argument("--kill-every", type=float, default=2, help="seconds between kills, about")
    parser.add_argument("--out", help="file for the JSON")
    args = parser.parse_args()
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
    nestor = os.path.abspath(args.nestor)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nestor-slurm-"))
    slurm = Slurm(folder)
    slurm.environment.update(PATH=f"{os.path.dirname(nestor)}:{os.environ['PATH']}", NESTOR_WORK=str(folder / "work"),
                             NESTOR_KEYS=str(folder / "keys"), NESTOR_LIBCUDA="/nonexistent")
    try:
        slurm.start()
        plan, out = folder / "plan.jsonl", folder / "out"
        widths = -(-args.problems // 10)
        slurm.run(nestor, "plan", "softmax", "--rows", "1..10+1", "--width", f"1..{widths}+1", "--out", plan)
        begin = time.monotonic()
        sent = slurm.run("sbatch", "--parsable", f"--array=0-{args.shares - 1}", f"--output={folder}/%a.log", HERE / "slurm_array.sh", plan, out,
                         "--target", "host", "--threads", "1", "--trials", "3")
        job = sent.stdout.strip()
        if not job:
            sys.exit(sent.stderr)
        killed = kill_some(slurm, job, args, folder / "work", random.Random(1))
        seconds = time.monotonic() - begin
        measured = sum(len(slurm.run(nestor, "db", "export", "--db", share).stdout.splitlines()) for share in (folder / "work").glob("*/share.db"))
        slurm.run(nestor, "db", "merge", *sorted(out.glob("*")), "--db", folder / "all.db")
        found = json.loads(slurm.run(nestor, "--json", "db", "summary", "--db", folder / "all.db").stdout)
        check = slurm.run(nestor, "db", "check", "--db", folder / "all.db")
        rows = sum(each["trials"] for each in found)
        report = {"slurm": slurm.run("sbatch", "--version").stdout.strip(), "problems": widths * 10, "problems_with_records": len(found),
                  "shares": args.shares, **killed, "rows": rows, "rows_lost": measured - rows, "seconds": round(seconds),
                  "check": check.stdout.strip(), "load_average": os.getloadavg()[0]}
    finally:
        slurm.stop()
    print(json.dumps(report, indent=1))
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    good = report["problems"] == report["problems_with_records"] and report["rows_lost"] == 0 and check.returncode == 0
    if good:
        shutil.rmtree(folder)
    else:
        print(f"see {folder}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
