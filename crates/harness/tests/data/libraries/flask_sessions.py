"""Sessions of Flask that Flask-Session keeps on the server, through Flask's test client."""
import datetime

from flask import Flask, session
from flask_session import Session

from common import check, connect, wait_for

client = connect()


def new_app(**options):
    app = Flask("shop")
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=client, SECRET_KEY="test", **options)
    Session(app)

    @app.get("/")
    def show():
        return dict(session)

    @app.post("/put/<name>/<value>")
    def put(name, value):
        session[name] = value
        session.setdefault("names", []).append(name)
        return "", 204

    @app.post("/leave")
    def leave():
        session.clear()
        return "", 204

    return app


def keys():
    return sorted(client.keys("session:*"))


for serialization in ("msgpack", "json"):
    app = new_app(SESSION_SERIALIZATION_FORMAT=serialization)
    first, second = app.test_client(), app.test_client()
    check("a visit leaves nothing", (first.get("/").get_json(), keys()), ({"_permanent": True}, []))
    first.post("/put/name/Ann")
    first.post("/put/town/\u00c5bo")
    second.post("/put/name/Bob")
    check("the first", first.get("/").get_json()["town"], "\u00c5bo")
    check("its list", first.get("/").get_json()["names"], ["name", "town"])
    check("the second", second.get("/").get_json()["name"], "Bob")
    check("both are there", len(keys()), 2)
    check("for a month", all(86400 * 30 < client.ttl(key) <= 86400 * 31 for key in keys()), True)
    again = new_app(SESSION_SERIALIZATION_FORMAT=serialization).test_client()
    again.set_cookie("session", first.get_cookie("session").value)
    check("another process of the application", again.get("/").get_json()["name"], "Ann")
    first.post("/leave")
    check("one has left", (len(keys()), "name" in again.get("/").get_json()), (1, False))
    second.post("/leave")
    check("both have", keys(), [])

brief = new_app(PERMANENT_SESSION_LIFETIME=datetime.timedelta(seconds=2)).test_client()
brief.post("/put/name/Eve")
check("while it lives", brief.get("/").get_json()["name"], "Eve")
wait_for("expired", keys, [])
check("after its time", "name" in brief.get("/").get_json(), False)
print("all good")
