use super::super::leveled::tests::view;
use super::*;
use expect_test::{Expect, expect};

/// Where each table should be, and what is done next.
fn check(text: &str, expected: Expect) {
    // What level 0 may come to need is little here.
    let view = view(&format!("base 1\n{text}"));
    let wish = |wish: Wish<'_>| format!("#{}@{}", wish.table.number, wish.tier);
    let wishes: Vec<String> = wishes(&view).into_iter().map(wish).collect();
    let told = |plan: Option<Plan>| plan.map_or("nothing".to_owned(), |plan| plan.to_string());
    expected.assert_eq(&format!(
        "{}\n{}, urgent {}\n",
        wishes.join(" "),
        told(plan(&view)),
        told(urgent(&view))
    ));
}

#[test]
fn upper_levels_are_fast_and_one_level_straddles() {
    check(
        "tier 400 free 40
         tier 4000 free 3000
         L0: 1[a..z,50]
         L1: 2[a..m,100] 3[n..z,100]
         L2: 4[a..f,100] 5[g..m,100]@1 6[n..z,100]@1",
        expect![[r#"
            #1@0 #2@0 #3@0 #4@0 #5@1 #6@1
            nothing, urgent nothing
        "#]],
    );
}

#[test]
fn the_hottest_of_a_level_that_straddles_goes_up_when_there_is_room() {
    check(
        "tier 400 free 180
         tier 4000 free 3000
         L1: 2[a..z,200]
         L2: 4[a..f,100]@1 5[g..m,100]@1^3 6[n..z,100]@1^1",
        expect![[r#"
            #2@0 #5@0 #6@1 #4@1
            relocate #5 of L2 to tier 0, urgent nothing
        "#]],
    );
}

#[test]
fn tables_change_places_only_for_a_clear_difference_in_heat() {
    check(
        "tier 400 free 20
         tier 4000 free 3000
         L2: 4[a..f,300]^2 5[g..m,300]@1^3",
        expect![[r#"
            #4@0 #5@1
            nothing, urgent nothing
        "#]],
    );
    check(
        "tier 400 free 20
         tier 4000 free 3000
         L2: 4[a..f,300]^2 5[g..m,300]@1^4",
        expect![[r#"
            #5@0 #4@1
            relocate #4 of L2 to tier 1, urgent nothing
        "#]],
    );
}

#[test]
fn a_tier_that_is_almost_full_gives_its_lowest_rank_away_first() {
    check(
        "tier 1280 free 5
         tier 4000 free 3000
         L0: 1[a..z,50]
         L1: 2[a..m,150] 3[n..z,150]!
         L2: 4[a..f,20]",
        expect![[r#"
            #1@0 #2@0 #3@0 #4@1
            relocate #4 of L2 to tier 1, urgent relocate #4 of L2 to tier 1
        "#]],
    );
    check(
        "tier 1280 free 5
         tier 4000 free 3000
         L0: 1[a..z,50]
         L1: 2[a..m,150] 3[n..z,150]
         L2: 4[a..f,40]",
        expect![[r#"
            #1@0 #2@0 #3@0 #4@1
            relocate #4 of L2 to tier 1, urgent relocate #4 of L2 to tier 1
        "#]],
    );
}

#[test]
fn three_tiers_fill_from_the_top() {
    check(
        "tier 100 free 100
         tier 200 free 200
         tier 900 free 500
         L1: 1[a..b,90]@2 2[c..d,90]@2 3[e..f,90]@2 4[g..h,90]@2",
        expect![[r#"
            #1@0 #2@1 #3@1 #4@2
            relocate #1 of L1 to tier 0, urgent nothing
        "#]],
    );
}

#[test]
fn outputs_go_where_their_level_has_room() {
    let text = "tier 640 free 130
                tier 4000 free 3000
                L0: 1[a..z,50]
                L1: 2[a..z,100]
                L2: 4[a..f,100] 5[g..z,900]@1";
    let view = view(text);
    let tier = |level, bytes| of_output(&view, level, bytes);
    // Levels 0 and 1 fit whole and may use what is kept for jobs; level 2 may not; level 3 has nothing to look for.
    assert_eq!(
        [tier(0, 130), tier(1, 130), tier(1, 131), tier(2, 120), tier(2, 121), tier(3, 10)],
        [0, 0, 1, 0, 1, 1]
    );
    // What is made of the last level leaves such room to others.
    let text = "tier 640 free 610\ntier 4000 free 3000\nL6: 2[a..z,100]\nL7: 4[a..f,100] 5[g..z,900]@1";
    let view = super::super::leveled::tests::view(&format!("base 10\n{text}"));
    assert_eq!([6, 7].map(|level| of_output(&view, level, 10)), [0, 1]);
}

#[test]
fn the_last_level_leaves_room_to_the_levels_above() {
    let levels = "L0: 1[a..z,20]
         L6: 2[a..z,100]
         L7: 3[a..m,50]@1 4[n..z,1900]@1";
    let wished = |text: &str| {
        let view = view(text);
        let wish = |wish: Wish<'_>| format!("#{}@{}", wish.table.number, wish.tier);
        let wishes: Vec<String> = wishes(&view).into_iter().map(wish).collect();
        (wishes.join(" "), [6, 7].map(|level| (of_level(&view, level), of_output(&view, level, 40))))
    };
    // Level 6 may grow to what there is: nothing is left for the last level.
    let kept = wished(&format!("base 40\ntier 640 free 510\ntier 9000 free 5000\n{levels}"));
    assert_eq!(kept, ("#1@0 #2@0 #3@1 #4@1".to_owned(), [(0, 0), (1, 1)]));
    // All of it fits, so it goes up.
    let fits = wished(&format!("base 40\ntier 6400 free 6000\ntier 9000 free 5000\n{levels}"));
    assert_eq!(fits, ("#1@0 #2@0 #3@0 #4@0".to_owned(), [(0, 0), (0, 0)]));
}

#[test]
fn tables_of_equal_warmth_stay_where_they_are() {
    check(
        "tier 400 free 20
         tier 4000 free 3000
         L2: 4[a..f,200]@1^2 5[g..m,370]^1",
        expect![[r#"
            #5@0 #4@1
            nothing, urgent nothing
        "#]],
    );
}

#[test]
fn an_index_that_lies_below_goes_up_first_and_data_makes_way_for_it() {
    let below = "tier 4000 free 3000
         L1: 2[a..m,100] 3[n..z,100]i30
         L2: 4[a..f,100] 5[g..m,100]i20 6[n..z,100]@1i20";
    check(
        &format!("tier 640 free 60\n{below}"),
        expect![[r#"
            #2@0 #3@0 #4@0 #5@1 #6@1
            relocate index of #3 of L1 to tier 0, urgent nothing
        "#]],
    );
    check(
        &format!("tier 640 free 20\n{below}"),
        expect![[r#"
            #2@0 #3@0 #4@0 #5@1 #6@1
            relocate #5 of L2 to tier 1, urgent nothing
        "#]],
    );
    // A quarter of the tier stays data's.
    check(
        &format!("tier 1600 free 30\n{below}"),
        expect![[r#"
            #2@0 #3@0 #4@0 #5@1 #6@1
            nothing, urgent nothing
        "#]],
    );
}
