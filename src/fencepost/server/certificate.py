"""The server's certificate: loaded at the start, and again when its files change.

TLS 1.2 is the oldest version that is spoken. A changed certificate is first loaded into a context of its own: if the
certificate and the key do not belong together, because only one of them has been replaced yet, the old pair stays in
use. Connections that are open keep theirs. The authorities for client certificates are read at the start only.
tests/server/test_tls.py checks this with real certificates.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any, Final

from ..errors import InvalidInput
from .keys import state_of
from .settings import Settings

log: Final = logging.getLogger("fencepost.server")


class Certificate:
    """The certificate and the key of the settings, as they were loaded last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._state = self._files()
        self.context = self._loaded()
        self.pair = self._read()  # the key and the chain, for grpcio
        if settings.tls_client_ca:
            try:
                self.context.load_verify_locations(settings.tls_client_ca)
            except (OSError, ssl.SSLError) as error:
                raise InvalidInput("tls_client_ca", f"{settings.tls_client_ca} cannot be loaded: {error}") from None
            self.context.verify_mode = ssl.CERT_REQUIRED

    def reload(self) -> bool:
        """Load the files again if they have changed; whether they have, and fit together."""
        state = self._files()
        if state == self._state:
            return False
        try:
            self._loaded()
            self.context.load_cert_chain(self._settings.tls_certificate, self._settings.tls_key)
        except (InvalidInput, OSError, ssl.SSLError) as error:
            log.warning("the changed certificate is not used yet: %s", error)
            return False
        self._state = state
        self.pair = self._read()
        log.info("the certificate was loaded again from %s", self._settings.tls_certificate)
        return True

    def _read(self) -> tuple[bytes, bytes]:
        return Path(self._settings.tls_key).read_bytes(), Path(self._settings.tls_certificate).read_bytes()

    def _files(self) -> Any:
        return state_of(Path(self._settings.tls_certificate)), state_of(Path(self._settings.tls_key))

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._settings.tls_certificate, self._settings.tls_key
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput("tls_certificate", f"{certificate} with {key} cannot be loaded: {error}") from None
        return context
