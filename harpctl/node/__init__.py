# SPDX-License-Identifier: Apache-2.0
"""HARP in a folder of a node, for the containers that mount it: installed, labelled, described for CDI."""
