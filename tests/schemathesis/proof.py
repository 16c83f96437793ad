"""Says what the run did to the database, and fails if it never came to what the server is for."""

import sqlite3
import sys

rows = sqlite3.connect(sys.argv[1]).execute(
    """
    SELECT CASE WHEN d.verdict = 'approve' THEN c.state ELSE d.verdict END, count(*)
    FROM decisions d JOIN tool_calls c USING (tool_call_id)
    WHERE c.held AND d.final AND d.actor LIKE 'user:%' GROUP BY 1
    """
)
did = dict(rows.fetchall())
print("held calls that a person ended:", did)
ran = did.get("succeeded", 0) + did.get("failed", 0)
if not (ran and did.get("reject") and did.get("cancel")):
    sys.exit("the run proves nothing: expected held calls that were approved and ran, rejected, and cancelled")
