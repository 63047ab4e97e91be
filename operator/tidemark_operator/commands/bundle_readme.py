"""The page that is written into a bundle: what is in it, and the commands to install it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tidemark_operator.api import crd
from tidemark_operator.commands import bundle_chart, bundle_images

PATH = "README.md"

_HEAD = """\
# Tidemark {version}: everything a site without internet needs

Check it first, after every copy: `sha256sum --check --strict --quiet SHA256SUMS`, or `tidemark bundle --verify .`,
which also finds files that do not belong here, and compares the archives with the list of images. Checksums tell
damage, not forgery: compare the SHA-256 of SHA256SUMS itself with the one that whoever made the bundle tells you.

| what | where |
|---|---|
| Helm chart | `{chart}` |
| the definition of InferenceService, which the chart holds too | `{crd}` |
| images and their digests | `{images}`, `images/` |
| how to make the images here | `operator/Containerfile`, `runtime/Containerfile`, `wheels/` |
| pages | `docs/operations/install.md` is the first one to read |
| dashboards for Grafana | `dashboards/grafana/`; `docs/operations/dashboards.md` says how to import them |
| a first service | `examples/` |

"""

_ARCHIVES = """\
## Images from archives

Into a registry of yours, for each line of `{images}` that has an archive:

    skopeo copy {kind}:{archive} docker://REGISTRY/{image}

or, without a registry, on every node: `ctr -n k8s.io images import FILE`. The archives should then be named
`localhost/...`, and the chart gets `images.registry=localhost,images.pullPolicy=Never`.

"""

_WHEELS = """\
## Images from wheels

BASE is an image with Python that the site has already; `docs/operations/install.md` says what must be in it. NAME is a
model in `wheels/models/`, without .whl.

"""
_BUILD = (
    "    buildah bud -f {folder}/Containerfile --build-arg BASE=BASE{model} -t REGISTRY/tidemark/{name}:{version} .\n"
)

_INSTALL = """\
## Install

    helm install tidemark {chart} -n tidemark-system --create-namespace --set images.registry=REGISTRY
    helm -n tidemark-system test tidemark
    kubectl apply -f examples/smollm2.yaml
"""


def text(chart: bundle_chart.Chart, images: Sequence[bundle_images.Image], wheels: Set[str]) -> str:
    """README.md. `wheels`: the folders that are below wheels/."""
    archived = next((image for image in images if image.archive), None)
    parts = [_HEAD.format(version=chart.app_version, chart=chart.package_path, crd=crd.PATH, images=bundle_images.PATH)]
    if archived is not None:
        kind = "oci-archive" if archived.digest_of == "manifest" else "docker-archive"
        parts.append(
            _ARCHIVES.format(images=bundle_images.PATH, kind=kind, archive=archived.archive, image=archived.image)
        )
    if wheels:
        parts += [_WHEELS, *_builds(chart.app_version, wheels), "\n"]
    parts.append(_INSTALL.format(chart=chart.package_path))
    return "".join(parts)


def _builds(version: str, wheels: Set[str]) -> Iterator[str]:
    if "operator" in wheels:
        yield _BUILD.format(folder="operator", model="", name="operator", version=version)
    if "runtime" in wheels:
        model = " --build-arg MODEL=NAME" if "models" in wheels else ""
        yield _BUILD.format(folder="runtime", model=model, name="engine", version=version)
