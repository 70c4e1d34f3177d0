package conform

import "abide/protocol"

// checkSchedules makes one that does not run while it is there: its cron matches once a year.
func checkSchedules(p *probe) {
	id := p.config.Prefix + "-schedule"
	defer p.ask("schedule.delete", object{"id": id})
	schedule := object{
		"id": id, "cron": "0 0 1 1 *", "promiseId": "{{.id}}.{{.timestamp}}", "promiseTimeout": 60_000,
		"promiseParam": object{"data": "x"}, "promiseTags": object{protocol.TagTarget: "poll://any@" + p.config.Prefix + "-nobody", "verify": p.config.Prefix + "-s"},
	}
	p.expect("get of an unknown one", "schedule.get", object{"id": id}, 404)
	p.expect("delete of an unknown one", "schedule.delete", object{"id": id}, 404)
	now := p.now() - 60_000
	p.expect("create", "schedule.create", schedule, 200, is("schedule.id", id), is("schedule.cron", schedule["cron"]),
		is("schedule.promiseId", schedule["promiseId"]), is("schedule.promiseTimeout", 60_000), is("schedule.promiseParam", schedule["promiseParam"]),
		is("schedule.promiseTags", schedule["promiseTags"]), has("schedule.createdAt"), lacks("schedule.lastRunAt"),
		that("nextRunAt is ahead", func(a answer) bool {
			next, is := number(a.at("schedule.nextRunAt"))
			return is && next > now && next%60_000 == 0
		}))
	again := object{"id": id, "cron": "* * * * *", "promiseId": "other", "promiseTimeout": 1, "promiseTags": schedule["promiseTags"]}
	p.expect("create again changes nothing", "schedule.create", again, 200, is("schedule.cron", schedule["cron"]))
	p.expect("get", "schedule.get", object{"id": id}, 200, is("schedule.cron", schedule["cron"]))
	p.expect("search", "schedule.search", object{"tags": object{"verify": p.config.Prefix + "-s"}}, 200, is("schedules.0.id", id), lacks("cursor"))
	p.expect("search of what there is not", "schedule.search", object{"tags": object{"verify": p.config.Prefix + "-none"}}, 200, is("schedules", []any{}))
	p.expect("a limit of 0", "schedule.search", object{"limit": 0}, 400)
	for _, cron := range []string{"", "* * * *", "61 * * * *", "* * * * 0", "@reboot", "nonsense"} {
		again["id"], again["cron"] = id+"-bad", cron
		p.expect("the cron "+`"`+cron+`"`, "schedule.create", again, 400)
	}
	p.expect("nothing was created", "schedule.get", object{"id": id + "-bad"}, 404)
	p.expect("delete", "schedule.delete", object{"id": id}, 200)
	p.expect("deleted", "schedule.get", object{"id": id}, 404)
	if !p.own {
		p.skip("crons that never match, bad targets", "only servers with workspaces promise them")
		return
	}
	again["id"], again["cron"] = id+"-bad", "0 0 0 1 1 ? 2020"
	p.expect("a cron that never matches again", "schedule.create", again, 400)
	again["cron"], again["promiseTags"] = "@daily", object{protocol.TagTarget: "nowhere"}
	p.expect("a bad target", "schedule.create", again, 400)
}
