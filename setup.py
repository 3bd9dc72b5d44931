"""The native library of the emulator, built with the compiler that `ziglang` brings; all else is in pyproject.toml."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = Path("cubridge", "backend", "ptx")
_spec = spec_from_file_location("ptx_build", FOLDER / "build.py")
ptx_build = module_from_spec(_spec)
_spec.loader.exec_module(ptx_build)


class BuildLibrary(build_ext):
    """A library for ctypes, which knows no Python, in place of an extension module."""

    def get_ext_filename(self, fullname):
        return str(FOLDER / ptx_build.LIBRARY) if "." in fullname else ptx_build.LIBRARY

    def build_extension(self, ext):
        ptx_build.build_library(Path(self.get_ext_fullpath(ext.name)))


class AnyPython(bdist_wheel):
    """One wheel an architecture."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


sources = sorted(str(p) for p in (FOLDER / "native").glob("*.cpp"))
setup(
    ext_modules=[Extension("cubridge.backend.ptx.libptx", sources)],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPython},
)
