# SPDX-License-Identifier: Apache-2.0
"""Starts one server with the bundled model and runs all protocol tests against it; one that dies fails them all."""
import sys
import unittest

import support


def main():
    server = support.start_server()
    try:
        loader = unittest.TestLoader()
        names = sys.argv[1:]
        suite = loader.loadTestsFromNames(names) if names else loader.discover(".", pattern="*_test.py")
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        dead = server.process.poll() is not None
        if dead:
            print("the server has died:", server.process.returncode, server.log_text()[-4000:])
        elif not result.wasSuccessful():
            print("the log's last lines:", server.log_text()[-3000:])
        return 0 if result.wasSuccessful() and not dead else 1
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
