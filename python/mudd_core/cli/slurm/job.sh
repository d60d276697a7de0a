#!/bin/bash
# Trains by the ranks of a Slurm job, and goes on after each time limit or preemption:
#
#   sbatch @FILE@
#
# Arguments after the file's name are added to the command below. Options of sbatch replace the lines below.
@HEADER@
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#
# LAUNCH=srun starts the ranks by srun --mpi=pmix instead of mpirun. PYTHON is the interpreter. USR1 comes two minutes
# before the end: the ranks save and exit with code 75, and the job is requeued. A file STOP in the work directory stops
# a run without requeueing, and so does scancel.
set -u
cd "${SLURM_SUBMIT_DIR:-.}" || exit 2
python=${PYTHON:-@PYTHON@}
threads=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads}

case ${LAUNCH:-@LAUNCH@} in
  mpirun) start=(mpirun --map-by "slot:PE=$threads" --bind-to core -x OMP_NUM_THREADS) ;;
  srun) start=(srun --mpi=pmix --cpus-per-task="$threads" --cpu-bind=cores) ;;
  *)
    echo "slurm: LAUNCH: expected mpirun or srun, got ${LAUNCH}" >&2
    exit 2
    ;;
esac

runs() { scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -q 'JobState=RUNNING'; }

preempted=
signalled=
"${start[@]}" "$python" @PROGRAM@ \
  @WORDS@ \
  "$@" &
ranks=$!
# Slurm sends USR1 by the line above, and TERM when it preempts with a grace period.
# scancel sends TERM too; its job is completing then, while a preempted one still runs.
trap 'preempted=1 signalled=1; kill -USR1 "$ranks" 2>/dev/null' USR1
trap 'signalled=1; kill -USR1 "$ranks" 2>/dev/null; if runs; then preempted=1; fi' TERM

# A trap ends `wait` early: wait again until it tells how the ranks ended.
while :; do
  signalled=
  wait "$ranks"
  code=$?
  [ -n "$signalled" ] || break
done

if [ "$code" -eq 75 ] && [ -n "$preempted" ]; then
  echo "slurm: preempted and saved; requeueing job $SLURM_JOB_ID"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
