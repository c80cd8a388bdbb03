"""Workers as pods of a Kubernetes Job with indexed completion: the manifest is printed, for
`kubectl apply -f -`; nothing is started from here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from convbench import __version__
from convbench.errors import RunError
from convbench.workers.on import Crew, Place
from convbench.workers.on.filled import filled

USUAL = 4
MANIFEST = """# kubectl apply -f FILE. To be filled in: the image, with convbench installed; the
# claim of a volume that many nodes may write to, which holds the run; a secret with the keys.
apiVersion: batch/v1
kind: Job
metadata:
  name: convbench-{{ name }}
spec:
  completionMode: Indexed
  completions: {{ workers }}
  parallelism: {{ workers }}
  backoffLimitPerIndex: 100
  podReplacementPolicy: Failed
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 60
      containers:
        - name: worker
          image: REGISTRY/convbench:{{ version }}
          workingDir: /work
          command: ["convbench", "work"]
          args: {{ words }}
          envFrom:
            - secretRef: {name: convbench-keys, optional: true}
          resources:
            requests: {cpu: "1", memory: 2Gi}
            limits: {memory: 4Gi}      # a worker that serves its model: nvidia.com/gpu: 1
          volumeMounts:
            - {name: runs, mountPath: /work}
      volumes:
        - name: runs
          persistentVolumeClaim: {claimName: convbench-runs}
"""


def usual(place: Place) -> int:
    """Return the pods where nobody says."""
    return USUAL


def written(crew: Crew) -> str:
    """Return the manifest. The run lies below the volume's mount, under its own name."""
    import json

    words = [f"/work/{crew.run.name}" if word == str(crew.run) else word for word in crew.words]
    name = re.sub(r"[^a-z0-9-]+", "-", crew.run.name.lower()).strip("-")[:50] or "run"
    facts: dict[str, str | int] = {
        "name": name, "workers": crew.count, "version": __version__, "words": json.dumps(words),
        "run": json.dumps(f"/work/{crew.run.name}"),
    }  # fmt: skip
    return filled(MANIFEST, crew, facts)


class Printed:
    """What was not started."""

    told: Sequence[str] = ()

    def alive(self) -> int:
        """Return 0."""
        return 0

    def stop(self) -> list[str]:
        """Nothing runs."""
        return []

    def close(self) -> None:
        """Nothing is held."""


def start(crew: Crew) -> Printed:
    """Refuse: pods are started with kubectl."""
    raise RunError(
        "--on k8s starts nothing; expected --dry-run, which prints the manifest. The run is ready "
        f"for it: copy {crew.run} to the volume, or let it lie there"
    )
