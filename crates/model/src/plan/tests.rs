use super::*;
use crate::inspect::tests::release;

const GB: u64 = 1_000_000_000;

fn request() -> PlanRequest {
    PlanRequest {
        slots: 4,
        context: 65536,
        pool_positions: 131_072,
        cache_bytes: 0,
        workspace_bytes: 1_000_000_000,
        drafts: true,
        memory_bytes: 400_000_000_000,
        device: false,
        experts_on_host: false,
        places_bytes: Some(900_000_000),
        host_bytes: 500_000_000_000,
        shared: None,
    }
}

fn release_plan(request: PlanRequest) -> Plan {
    plan(&release(), &Census::released(&release()), &request)
}

#[test]
fn every_byte_is_counted_once() {
    let p = release_plan(request());
    let census = Census::released(&release());
    let stored: u64 = census.bytes(|_| true);
    assert_eq!(p.bytes(Kind::Mapped) + p.bytes(Kind::ByRow), stored);
    let want = 131_072 * 890 + 4 * 43 * 128 * 528 + 4 * 12288 + 1_000_000_000;
    assert_eq!(p.bytes(Kind::Allocated), want);
    assert_eq!(p.blocks, 512);
    let pool = p.items.iter().find(|i| i.name == "KV pool").unwrap();
    assert_eq!(pool.how, "512 blocks x 256 positions x 890 B");
    let plain = release_plan(PlanRequest { drafts: false, ..request() });
    assert!(plain.items.iter().all(|i| !i.name.starts_with("drafter")));
}

#[test]
fn verdicts_say_their_arithmetic() {
    let p = release_plan(request());
    assert_eq!(p.verdict, Verdict::Fits, "{}", p.reason);
    assert!(p.reason.starts_with("1.13 GB to allocate + "), "{}", p.reason);

    let p = release_plan(PlanRequest { memory_bytes: 24_000_000_000, ..request() });
    assert_eq!(p.verdict, Verdict::FitsFromDisk);
    assert!(p.reason.starts_with("1.13 GB to allocate leaves 22.9 GB of 24.0 GB for "));

    let p = release_plan(PlanRequest { memory_bytes: 1_000_000_000, ..request() });
    assert_eq!(p.verdict, Verdict::Refused);
    assert_eq!(
        p.reason,
        "1.13 GB to allocate is more than 1.00 GB of memory, of which the KV pool (--pool-tokens) \
         is 117 MB: 512 blocks x 256 positions x 890 B"
    );
}

#[test]
fn devices_that_share_the_weights_are_weighed_one_by_one() {
    let shared = Some(Shared { gpus: 2, target: 90_000_000_000, drafts: 3_000_000_000 });
    let each = PlanRequest { device: true, places_bytes: None, shared, ..request() };
    let p = release_plan(PlanRequest { memory_bytes: 100_000_000_000, ..each });
    assert_eq!(p.verdict, Verdict::Fits);
    assert_eq!(p.reason, "94.1 GB to allocate of 100 GB free on each of 2 GPUs");
    let item = |name: &str| p.items.iter().find(|item| item.name == name).unwrap();
    assert_eq!((item("weights").bytes, item("drafter weights").bytes), (90 * GB, 3 * GB));
    assert_eq!(item("weights").how, "40 layers, embedding and head, a GPU's part of 2");
    let p = release_plan(PlanRequest { memory_bytes: 90_000_000_000, ..each });
    assert_eq!(p.verdict, Verdict::Refused);
    assert!(p.reason.ends_with("= 94.1 GB is more than 90.0 GB free on each of 2 GPUs"));
}

#[test]
fn a_device_holds_the_weights_or_refuses_them() {
    let request = |memory_bytes| PlanRequest {
        memory_bytes,
        device: true,
        cache_bytes: 5_000_000,
        ..request()
    };
    let p = release_plan(request(400_000_000_000));
    let host = release_plan(super::tests::request());
    let held = host.bytes(Kind::Allocated) + host.bytes(Kind::Mapped);
    assert_eq!((p.verdict, p.bytes(Kind::Allocated)), (Verdict::Fits, held), "{}", p.reason);
    assert_eq!((p.bytes(Kind::Mapped), p.bytes(Kind::Host)), (0, 5_000_000));
    assert_eq!(release_plan(request(held)).verdict, Verdict::Fits);
    let p = release_plan(request(held - 1));
    assert_eq!(p.verdict, Verdict::Refused);
    assert!(p.reason.starts_with("weights ") && p.reason.contains(" + workspace 1.00 GB = "));
    assert!(p.reason.contains(" free on the device; --experts-on host needs "), "{}", p.reason);
}

#[test]
fn experts_on_the_host_leave_the_device_and_are_locked() {
    let request = |memory_bytes, host_bytes| PlanRequest {
        memory_bytes,
        host_bytes,
        device: true,
        experts_on_host: true,
        ..request()
    };
    let whole = release_plan(PlanRequest { device: true, ..super::tests::request() });
    let p = release_plan(request(400_000_000_000, 500_000_000_000));
    let (held, locked) = (p.bytes(Kind::Allocated), p.bytes(Kind::Locked));
    // What the device does not hold the host does; places come on top.
    assert_eq!(held + locked, whole.bytes(Kind::Allocated) + 900_000_000);
    let census = Census::released(&release());
    let target = census.bytes(|w| w.class == Class::Experts);
    assert!(locked > target && locked < target * 6 / 5, "{locked} {target}");
    let plain = release_plan(PlanRequest { drafts: false, ..request(1, 1) });
    assert_eq!(plain.bytes(Kind::Locked), target);
    let sum = |bytes| human(bytes);
    assert_eq!(
        p.reason,
        format!(
            "{} to allocate of 400 GB free on the device, {} to lock of 500 GB of host memory",
            sum(held),
            sum(locked)
        )
    );
    assert_eq!(release_plan(request(held, locked)).verdict, Verdict::Fits);
    let p = release_plan(request(held, locked - 1));
    let wanted = " of routed experts to lock is more than ";
    assert!(p.verdict == Verdict::Refused && p.reason.contains(wanted), "{}", p.reason);
    let p = release_plan(request(held - 1, locked));
    assert!(p.verdict == Verdict::Refused && p.reason.ends_with(" free on the device"));
    // A device that holds it not says what this would take.
    let p = release_plan(PlanRequest { experts_on_host: false, ..request(held, locked) });
    let wanted = format!(
        "; --experts-on host needs {} there and locks {} of {} of host memory",
        sum(held),
        sum(locked),
        sum(locked)
    );
    assert!(p.verdict == Verdict::Refused && p.reason.ends_with(&wanted), "{}", p.reason);
    let none = PlanRequest { experts_on_host: false, places_bytes: None, ..request(held, locked) };
    assert!(release_plan(none).reason.ends_with(" free on the device"));
}

#[test]
fn a_pool_is_cut_to_what_memory_holds() {
    let fits = |memory_bytes| {
        let request = PlanRequest { memory_bytes, ..request() };
        pool_that_fits(&release(), &Census::released(&release()), &request)
    };
    assert_eq!(fits(400_000_000_000), 131_072);
    assert_eq!(fits(u64::MAX), 131_072);
    let rest = 4 * 43 * 128 * 528 + 4 * 12288 + 1_000_000_000;
    // Weights do not fit anyway: they leave the pool what is not allocated.
    assert_eq!(fits(rest + 300 * 256 * 890), 300 * 256);
    assert_eq!(fits(rest + 300 * 256 * 890 - 1), 299 * 256);
    // One context stays, and is refused by the plan.
    assert_eq!(fits(rest), 65536);
    let cached =
        PlanRequest { cache_bytes: 256 * 890, memory_bytes: rest + 300 * 256 * 890, ..request() };
    let cached = pool_that_fits(&release(), &Census::released(&release()), &cached);
    assert_eq!(cached, 299 * 256);
}

#[test]
fn requests_that_cannot_work_are_refused_by_name() {
    let say = |r: PlanRequest| {
        let p = release_plan(r);
        assert_eq!(p.verdict, Verdict::Refused);
        p.reason
    };
    assert_eq!(
        say(PlanRequest { slots: 0, ..request() }),
        "0 slots of 65536 positions: at least 1 of each"
    );
    assert_eq!(
        say(PlanRequest { context: 2_000_000, ..request() }),
        "a context of 2000000, accepted: up to 1048576, what the model was made for"
    );
    assert_eq!(
        say(PlanRequest { pool_positions: 1000, ..request() }),
        "a pool of 1024 positions: too small for one context of 65536"
    );
    let plan = release_plan(PlanRequest { cache_bytes: 1_000_000, ..request() });
    assert_eq!(
        plan.reason,
        "a prefix cache (--prompt-cache-gib) of 1.00 MB: one prefix takes 2.92 MB outside the pool; \
         0 keeps none"
    );
}

#[test]
fn bytes_read_well() {
    let cases = [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_995, "10.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (12_900_000_000, "12.9 GB"),
        (u64::MAX, "18447 PB"),
    ];
    for (bytes, text) in cases {
        assert_eq!(human(bytes), text);
    }
}
