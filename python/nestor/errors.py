"""What can go wrong, as exceptions. Messages are those of the C library."""


class Error(Exception):
    """Base of all of Nestor's exceptions."""


class NotFound(Error, LookupError):
    """No kernel in the database fits what was asked."""


class UserError(Error, ValueError):
    """Bad input; nothing was written."""


class DeviceError(Error, RuntimeError):
    """The device or its driver failed."""


class InternalError(Error, RuntimeError):
    """A bug in Nestor, or no memory."""
