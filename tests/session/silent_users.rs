//! Reasons that a session over several users reports if it has no event.

use crate::users_fixture::{ANN_UID, BOB_UID, EVE_UID, UsersTest};

/// RUN sessions over users whose programs execute no event while they record; stop one of them.
/// EXPECT reasons that name the processes of the recorded users, the processes of a user who is not
/// recorded, and the stop.
#[test]
fn a_session_over_users_without_an_event_reports_why() {
    let Some(users) = UsersTest::new("users-silent") else { return };
    let running = [ANN_UID, BOB_UID, EVE_UID].map(|uid| users.bursts(uid));
    let [ann, bob, eve] = running.each_ref().map(|bursts| u64::from(bursts.running.pid()));
    let test = &users.test;
    test.ok(&format!("session create two --user {ANN_UID},{BOB_UID} --event life:* -o two"));
    test.ok("session create all --user all --event life:* -o all");
    [ANN_UID, BOB_UID, EVE_UID].iter().for_each(|uid| users.wait_for("all", *uid));
    let reasons = |session: &str| -> Vec<(String, Vec<u64>)> {
        let status = test.status(session);
        let array = |value: &serde_json::Value| value.as_array().expect("a list").clone();
        let pid = |process: &serde_json::Value| process["pid"].as_u64().expect("a process id");
        let reasons = array(&status["no-events-because"]).into_iter().map(|reason| {
            let pids: Vec<u64> = array(&reason["processes"]).iter().map(pid).collect();
            let ours: Vec<u64> =
                pids.into_iter().filter(|pid| [ann, bob, eve].contains(pid)).collect();
            (reason["reason"].as_str().expect("a word").to_owned(), ours)
        });
        // Programs of other tests also run, and have other reasons.
        reasons.filter(|(reason, pids)| reason == "stopped" || !pids.is_empty()).collect()
    };
    let sorted = |mut pids: Vec<u64>| {
        pids.sort_unstable();
        pids
    };
    assert_eq!(
        reasons("two"),
        [("not-executed".to_owned(), sorted(vec![ann, bob])), ("other-user".to_owned(), vec![eve])]
    );
    assert_eq!(reasons("all"), [("not-executed".to_owned(), sorted(vec![ann, bob, eve]))]);
    test.ok("session stop two");
    assert_eq!(
        reasons("two"),
        [("stopped".to_owned(), vec![]), ("other-user".to_owned(), vec![eve])]
    );
    let (_, talk) = test.ok("session destroy two");
    assert!(talk.contains("the session 'two' was stopped"), "{talk}");
    assert!(!talk.contains("session start"), "it cannot be started: {talk}");
    assert!(talk.contains(&format!("belong to user {EVE_UID}: {eve} emitter")), "{talk}");
    drop(running);
}
