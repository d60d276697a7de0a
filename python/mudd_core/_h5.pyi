"""
HDF5 files: contiguous datasets, attributes, and the position of a dataset's bytes.
"""
from __future__ import annotations
import numpy
import typing
__all__: list[str] = ['File', 'dataset_offset']
class File:
    """
    One HDF5 file; format bounds v110..v110, no time stamps. One thread at a time.
    """
    @staticmethod
    def create(path: str) -> File:
        """
        A new file; ValueError if it exists.
        """
    @staticmethod
    def open(path: str) -> File:
        """
        An existing file for reading; FormatError if damaged.
        """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def close(self) -> None:
        """
        Writes what is buffered and closes.
        """
    def create_dataset(self, name: str, dtype: typing.Any, count: int) -> None:
        """
        A contiguous dataset of `count` elements.
        """
    def has(self, name: str) -> bool:
        """
        True if the file holds an object of that name.
        """
    def number(self, name: str) -> int:
        ...
    def place(self, name: str) -> tuple[int, int, str]:
        """
        (byte offset or -1, count, dtype) of a dataset.
        """
    def read(self, name: str, first: int = 0, count: int = -1) -> numpy.ndarray:
        """
        Elements [first, first + count) as an array; count -1: to the end.
        """
    def set_number(self, name: str, value: int) -> None:
        ...
    def set_text(self, name: str, value: str) -> None:
        ...
    def text(self, name: str) -> str:
        ...
    def write(self, name: str, data: numpy.ndarray, first: int = 0) -> None:
        """
        Writes a one-dimensional array from element `first` on.
        """
def dataset_offset(path: str, dataset: str) -> tuple[int, int, str]:
    """
    (byte offset, count, dtype) of a contiguous dataset; FormatError if it is not contiguous.
    """
