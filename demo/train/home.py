"""Everyday things by small tables: sums in words, the calendar, comparisons, what animals can do, members of a kind,
kitchen advice, little notes with a name in them, and what only the asking person can know.

Every maker returns (question, answer, thought)."""

from grammar import FIRST, NUMBERS, article, expand, listing, name, upper_first
from known import KNOWN
from open_talk import IDEA, plural

TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
TEENS = NUMBERS + "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
MONTHS = {"January": 31, "February": 28, "March": 31, "April": 30, "May": 31, "June": 30, "July": 31, "August": 31, "September": 30, "October": 31, "November": 30, "December": 31}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ORDER = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
SEASONS = ["winter", "spring", "summer", "autumn"]

# from little to much; "=" before a name that takes no article
SCALES = {
    "bigger|larger|smaller": ["=a grain of sand;a pea;a grape;an egg;an apple;a football;a suitcase;a fridge;a car;a bus;a house;a church;a skyscraper;a mountain;the moon;the earth;the sun",
                              "a flea;an ant;a bee;a mouse;a rat;a squirrel;a cat;a fox;a wolf;a pig;a lion;a horse;a bear;a rhino;an elephant;a blue whale", "a village;a town;a city;a country;a continent;the earth", "a puddle;a pond;a lake;a sea;an ocean", "a bush;a cherry tree;an oak"],
    "heavier|lighter": ["a feather;a coin;a pencil;an apple;a book;a brick;a chair;a bicycle;a sofa;a piano;a car;a truck;a train;a ship", "a leaf;a nut;a potato;a melon;a pumpkin;a cow;an elephant", "=a gram;a kilogram;a tonne"],
    "faster|slower": ["a snail;a turtle;a person;a bicycle;a horse;a car;a train;a plane;a rocket;=light", "a worm;a crab;a hen;a dog;a cheetah;a falcon"],
    "hotter|warmer|colder": ["=ice;=cold water;=warm water;=boiling water;a fire;the sun", "=winter;=spring;=summer", "the North Pole;=Norway;=Spain;the Sahara"],
    "longer|shorter": ["=a second;a minute;an hour;a day;a week;a month;a year;a decade;a century", "=a millimeter;a centimeter;a meter;a kilometer", "a needle;a pencil;a ruler;a broom;a bus;a train;a river"],
    "older|younger": ["a baby;a child;a teenager;an adult;a grandmother"],
    "more expensive|cheaper": ["a pencil;a sandwich;a book;a phone;a car;a house"],
    "harder|softer": ["=butter;=wax;=wood;=steel;a diamond", "a pillow;a rug;a plank;a stone"],
    "taller|shorter": ["a mouse;a dog;a person;a horse;an elephant;a giraffe;a tree;a tower;a mountain"],
    "louder|quieter": ["a whisper;a conversation;a drum;a siren;a rocket"],
    "sweeter": ["a lemon;a carrot;an apple;=honey"],
    "deeper": ["a puddle;a pond;a lake;an ocean"],
    "stronger|weaker": ["an ant;a cat;a dog;a person;a horse;a bear;an elephant"],
}
LESS = {"smaller", "lighter", "slower", "colder", "shorter", "younger", "cheaper", "softer", "quieter", "weaker"}

# members of a kind, with the kinds' names
KINDS = """red fruits|fruits that are red: apple, cherry, strawberry, raspberry
yellow fruits|fruits that are yellow: banana, lemon, pineapple, quince
green fruits|fruits that are green: lime, kiwi, gooseberry, green grape
orange fruits|fruits that are orange: orange, mandarin, apricot, persimmon
purple fruits|blue fruits|fruits that are purple: plum, blueberry, fig, grape
green vegetables|vegetables that are green: cucumber, spinach, broccoli, pea
orange vegetables: carrot, pumpkin, sweet potato
red vegetables|red things to eat: tomato, beet, red pepper, radish
white things|things that are white: snow, milk, salt, rice
red things|things that are red: blood, a rose, a tomato, a fire engine
green things|things that are green: grass, a frog, a leaf, a cucumber
blue things|things that are blue: the sky, the sea, a sapphire, a blueberry
yellow things|things that are yellow: the sun, a lemon, a banana, a canary
black things|things that are black: coal, a raven, the night, ink
brown things|things that are brown: chocolate, soil, bark, coffee
round things|things that are round: a ball, a coin, a wheel, the moon
cold things|things that are cold: ice, snow, a fridge, ice cream
hot things|things that are hot: fire, the sun, an oven, hot tea
soft things|things that are soft: a pillow, cotton, fur, a kitten
hard things|things that are hard: a stone, steel, a diamond, a brick
sweet things|sweet foods|things that taste sweet: honey, sugar, chocolate, cake
sour things|sour foods|things that are sour: a lemon, vinegar, rhubarb, a lime
salty foods|salty things: chips, olives, feta cheese, pretzels
hot drinks|warm drinks: tea, coffee, cocoa, mulled cider
cold drinks|soft drinks|drinks for the summer: lemonade, iced tea, juice, cold milk
breakfast foods|things to eat for breakfast: eggs, bread, oats, pancakes
snacks: nuts, popcorn, an apple, crackers
soups|kinds of soup: tomato soup, chicken soup, onion soup, lentil soup
kinds of cheese|cheeses: cheddar, gouda, brie, feta
kinds of pasta|pasta shapes: spaghetti, penne, fusilli, ravioli
kinds of bread|breads: rye bread, white bread, baguette, pita
cake flavors|kinds of cake: chocolate cake, cheesecake, carrot cake, lemon cake
pizza toppings: cheese, mushrooms, olives, salami
ice cream flavors: vanilla, chocolate, strawberry, lemon
mammals|animals that are mammals: dog, whale, bat, elephant
reptiles: snake, lizard, turtle, crocodile
amphibians: frog, toad, newt, salamander
sea animals|animals that live in the sea|animals in the ocean: whale, shark, octopus, seal
birds that cannot fly|birds that can't fly|flightless birds: penguin, ostrich, emu, kiwi
animals that can fly|flying animals: bird, bat, bee, butterfly
animals with four legs|four-legged animals: dog, horse, cat, cow
animals that lay eggs: hen, turtle, fish, snake
animals with stripes|striped animals: zebra, tiger, skunk, okapi
animals with horns: goat, cow, rhino, antelope
animals that sleep in winter|animals that hibernate: bear, hedgehog, bat, marmot
animals that live in the forest|forest animals: deer, fox, owl, squirrel
animals in the desert|desert animals: camel, scorpion, lizard, rattlesnake
small animals|tiny animals: mouse, ant, frog, sparrow
big animals|large animals: elephant, whale, giraffe, hippo
dog breeds|breeds of dogs|kinds of dogs: poodle, beagle, labrador, bulldog
cat breeds|breeds of cats: Siamese, Persian, Maine Coon, Bengal
house plants|indoor plants: cactus, fern, ivy, aloe
winter sports: skiing, skating, sledding, ice hockey
water sports: swimming, rowing, sailing, surfing
ball games|ball sports: football, basketball, tennis, volleyball
card games: poker, bridge, rummy, solitaire
outdoor games|games to play outside: tag, hide and seek, frisbee, hopscotch
string instruments|instruments with strings: violin, guitar, cello, harp
wind instruments: flute, trumpet, clarinet, saxophone
things in a bathroom|things you find in a bathroom: soap, a towel, a mirror, a toothbrush
things in a bedroom: a bed, a lamp, a pillow, a wardrobe
things in an office|office supplies: a desk, paper, a stapler, pens
things to take to the beach|things you need at the beach: a towel, sun cream, water, a hat
things to take camping|things for camping: a tent, a sleeping bag, a lamp, matches
things you wear in winter|winter clothes|warm clothes: a coat, gloves, a scarf, boots
summer clothes|things you wear in summer: shorts, a t-shirt, sandals, a sun hat
things with wheels|things that have wheels: a car, a bicycle, a train, a skateboard
things that fly|things that can fly: a plane, a bird, a kite, a balloon
things made of wood|wooden things: a table, a door, a pencil, a bench
things made of glass: a window, a bottle, a mirror, a light bulb
things made of metal: a key, a coin, a nail, a spoon
things made of paper: a book, a letter, a napkin, a map
things that melt|things which melt: ice, butter, snow, chocolate
things you can read|things to read: a book, a letter, a newspaper, a menu
emotions|feelings: joy, anger, fear, sadness
family members|members of a family: mother, father, sister, uncle
school subjects: math, history, art, biology
chores|household chores: washing dishes, sweeping, ironing, cooking
odd numbers: 1, 3, 5, 7
even numbers: 2, 4, 6, 8
prime numbers: 2, 3, 5, 7
days of the weekend|weekend days: Saturday, Sunday
meals of the day|meals: breakfast, lunch, dinner
letters|vowels: A, E, I, O
coins: penny, nickel, dime, quarter
fairy tales: Cinderella, Snow White, Rapunzel, Hansel and Gretel
superheroes: Superman, Batman, Spider-Man, Wonder Woman
famous scientists: Albert Einstein, Marie Curie, Isaac Newton, Charles Darwin
famous painters|painters: Vincent van Gogh, Pablo Picasso, Claude Monet, Leonardo da Vinci
famous composers|composers: Mozart, Beethoven, Bach, Vivaldi
islands: Iceland, Cuba, Madagascar, Sicily
lakes: Lake Victoria, Lake Superior, Lake Geneva, Lake Baikal
deserts: the Sahara, the Gobi, the Kalahari, the Atacama
ways to relax: a warm bath, music, a walk, a good book
ways to say hello|greetings: hello, hi, good morning, hey
ways to say goodbye: goodbye, see you later, take care, so long
things to do on a rainy day|indoor activities|rainy day activities: reading, baking, a board game, a puzzle
things to do outside|outdoor activities: a walk, a picnic, cycling, gardening
dinner ideas|ideas for dinner|meals for dinner|things to cook for dinner: pasta with tomato sauce, vegetable soup, rice with beans, omelette with salad
lunch ideas|ideas for lunch|easy lunches: a sandwich, a salad, soup, a wrap
gift ideas|ideas for a gift|presents for a friend: a book, flowers, chocolate, a framed photo
party games|games for a party: charades, musical chairs, bingo, a quiz
healthy foods|healthy things to eat: vegetables, fruit, nuts, beans
healthy habits: sleeping enough, walking every day, drinking water, eating vegetables
good manners: saying please, saying thank you, listening, being on time"""
KINDS = [(kinds.split("|"), [m.strip() for m in members.split(",")]) for kinds, members in (line.split(": ", 1) for line in KINDS.split("\n"))]

EXAMPLES = """mammal: a dog|a whale|a bat|a cow; bird: an eagle|a duck|an owl; fish: a salmon|a trout|a shark; insect: a bee|an ant|a fly; reptile: a snake|a lizard|a crocodile; amphibian: a frog|a toad; fruit: an apple|a pear|a banana; vegetable: a carrot|a potato|spinach; verb: "run"|"eat"|"sing"; noun: "house"|"tree"|"dog"
adjective: "red"|"happy"|"small"; country: France|Japan|Kenya; city: Paris|Rome|Tokyo; planet: Mars|Venus|Saturn; metal: iron|gold|copper; tree: an oak|a birch|a pine; flower: a rose|a tulip|a daisy; color: red|blue|green; sport: tennis|football|swimming; musical instrument: a piano|a violin|a flute; tool: a hammer|a saw|a drill; drink: water|tea|juice
liquid: water|milk|oil; gas: oxygen|helium; solid: ice|iron|wood; language: French|Spanish|Arabic; season: spring|winter; month: May|June; continent: Africa|Asia|Europe; ocean: the Pacific|the Atlantic; river: the Nile|the Danube; mountain: Mount Everest|Kilimanjaro; vehicle: a car|a bus|a bicycle; shape: a circle|a square; spice: pepper|cinnamon; herb: basil|thyme
grain: wheat|rice|oats; nut: an almond|a walnut; berry: a strawberry|a blueberry; pet: a cat|a hamster; prime number: 7|13; even number: 4|10; odd number: 3|9; vowel: A|E; holiday: Christmas|Easter; piece of furniture: a table|a sofa; fairy tale: Cinderella|Snow White; board game: chess|checkers; card game: poker|bridge
wild animal: a lion|a wolf; farm animal: a cow|a sheep; sea animal: a whale|an octopus; rodent: a mouse|a squirrel; dog breed: a poodle|a beagle; winter sport: skiing|skating; citrus fruit: a lemon|an orange; hot drink: tea|cocoa; dairy product: cheese|yogurt; root vegetable: a carrot|a beet; string instrument: a violin|a guitar; European country: Italy|Spain
gemstone: a diamond|a ruby; dance: the waltz|the tango; emotion: joy|anger; sense: sight|hearing; punctuation mark: a comma|a period; job: a baker|a nurse; hobby: painting|chess; garment: a shirt|a coat; weapon: a sword|a bow; dinosaur: a stegosaurus|a triceratops; superhero: Batman|Superman; carnivore: a lion|a wolf; herbivore: a cow|a rabbit; palindrome: "level"|"noon\""""
EXAMPLES = [(k.strip(), v.split("|")) for k, v in (p.split(": ", 1) for p in EXAMPLES.replace("\n", "; ").split("; "))]
PARTS = [p.rsplit(" ", 1) for p in "hands two;feet two;arms two;legs two;eyes two;ears two;knees two;elbows two;thumbs two;lungs two;kidneys two;noses one;heads one;hearts one;eyebrows two;shoulders two;lips two;ribs 24;livers one;cheeks two".split(";")]

# the first way to say it is the one of the reply
WHO = """repairs cars|fixes cars|repairs engines: mechanic; treats sick animals|takes care of sick animals|heals animals|helps sick pets: vet; treats teeth|fixes teeth|looks after teeth|cleans teeth: dentist; cuts hair|gives haircuts|does your hair: hairdresser; teaches children|works in a school|gives lessons: teacher
puts out fires|fights fires: firefighter; grows food|works on a farm|grows vegetables and keeps cows: farmer; delivers the mail|brings letters|delivers letters: mail carrier; repairs water pipes|fixes pipes|fixes a leaking tap|repairs toilets: plumber; flies planes|flies a plane|sits in the cockpit: pilot
treats ill people|helps sick people|takes care of sick people: doctor; cares for patients|looks after patients in a hospital: nurse; makes furniture from wood|works with wood|builds tables: carpenter; designs buildings|draws plans for houses: architect; sells meat|cuts meat: butcher; sells medicine|gives out pills: pharmacist
bakes bread and cakes|makes bread|bakes cakes: baker; cooks food in a restaurant|works in a kitchen: cook; brings food to the table|serves food in a restaurant|takes your order: waiter; catches fish|goes out to sea for fish: fisherman; drives a bus|works on a bus: bus driver; drives a taxi|takes you home in a cab: taxi driver
works with electric wires|fixes lamps and wires|repairs the electricity: electrician; paints pictures|makes paintings: painter; writes books|writes novels: writer; takes photos|takes pictures for a living: photographer; plays in films|acts on a stage: actor; lends books|works in a library: librarian; guards the law|catches thieves|arrests criminals: police officer
judges in a court|decides cases in court: judge; defends people in court|gives legal advice: lawyer; repairs shoes|mends shoes|makes shoes: shoemaker; makes clothes|sews suits: tailor; cares for gardens|plants flowers|cuts hedges: gardener; works under the ground for coal|digs for coal: miner; cleans chimneys|sweeps chimneys: chimney sweep
studies the stars|looks at stars: astronomer; flies into space|travels to the moon: astronaut; digs up old things|studies ruins: archaeologist; sells flowers|makes bouquets: florist; keeps bees|makes money with honey: beekeeper; rules a country with a crown|wears a crown: king; trains athletes|trains a team: coach; watches children|looks after kids: babysitter"""
WHO = [(x.strip().split("|"), y.strip()) for x, y in (p.split(": ", 1) for p in WHO.replace("\n", "; ").split("; "))]
TINTS = """strawberries: red; bananas: yellow; lemons: yellow; carrots: orange; the inside of a watermelon: red; a watermelon inside: red; a school bus: yellow; fire trucks: red; blueberries: blue; tomatoes: red; cucumbers: green; peas: green; grass: green; snow: white; coal: black; chocolate: brown; the sky: blue; clouds: white; the sun: yellow; the sea: blue
lettuce: green; eggplants: purple; raspberries: red; blackberries: black; pumpkins: orange; corn: yellow; polar bears: white; ravens: black; flamingos: pink; frogs: green; elephants: grey; rubies: red; emeralds: green; sapphires: blue; blood: red; milk: white; butter: yellow; honey: golden; coffee: brown; ketchup: red; mustard: yellow; a stop sign: red; an orange: orange
a ripe banana: yellow; the leaves of a tree: green; the inside of a kiwi: green; the inside of an avocado: green; a lime: green; pine trees: green; sunflowers: yellow; a canary: yellow; a crow: black; swans: white; sand: yellow; mud: brown; ink: blue or black; cherries: red; plums: purple; peaches: orange; broccoli: green; spinach: green; salt: white; sugar: white; flour: white; rice: white; paprika: red; gold: yellow; silver: grey
a zebra: black and white; pandas: black and white; a penguin: black and white; ladybugs: red with black dots; bees: yellow and black; apples: red, green or yellow; grapes: green or purple; roses: red, white, yellow or pink; eggs: white or brown; foxes: reddish brown; lions: golden brown; a soccer ball: black and white; a taxi in New York: yellow"""
TINTS = [p.strip().split(": ", 1) for p in TINTS.replace("\n", "; ").split("; ")]

# instead of the first the second will do
INSTEAD = """eggs in a cake|eggs|egg: mashed banana or a little applesauce; milk: oat milk, soy milk or water with a little butter; butter: oil or margarine; sugar: honey or maple syrup; flour: ground oats or corn starch, depending on the dish
cream: milk with a little butter; sour cream: plain yogurt; lemon juice|lemon: a little vinegar; vinegar: lemon juice; wine in a sauce|wine: broth or grape juice; bread crumbs: crushed crackers; baking powder: baking soda with a little lemon juice
onions|onion: leeks or a little onion powder; garlic: garlic powder or chives; tomato sauce: chopped tomatoes; rice: couscous, potatoes or pasta; potatoes: rice or pasta; meat: beans, lentils or mushrooms; honey: sugar or syrup; oil: melted butter
yeast: baking powder; parsley: another fresh herb such as chives; soy sauce: salt and a little broth; mayonnaise: plain yogurt; maple syrup: honey; chicken broth|broth: water with salt and herbs; cheese: a little salt and nuts on top; coffee: tea or cocoa
ketchup: tomato paste with a little sugar; cinnamon: a little nutmeg; chocolate: cocoa powder with sugar; a rolling pin: a clean bottle; a cake tin: any oven dish of the same size; a blender: a fork and some patience; dish soap: a little baking soda in hot water
a ruler: the edge of a book; an iron: a hot shower, which lets the clothes hang smooth; wrapping paper: newspaper or a nice scarf; a corkscrew: a long screw and pliers; glue: strong tape"""
INSTEAD = [(x.strip().split("|"), y.strip()) for x, y in (p.split(": ", 1) for p in INSTEAD.replace("\n", "; ").split("; "))]
GOES = """chicken: rice, vegetables or a green salad; fish: potatoes, lemon and spinach; steak: potatoes, beans or a salad; pasta: tomato sauce, cheese or pesto; rice: curry, beans or vegetables; soup: fresh bread; cheese: bread, grapes or pears; salmon: dill, potatoes and lemon
pancakes: maple syrup, fruit or jam; eggs: toast, cheese or spinach; coffee: cake or cookies; tea: biscuits, honey or lemon; tomatoes: basil and mozzarella; potatoes: butter, herbs or sour cream; ice cream: fruit or hot chocolate sauce; strawberries: cream or yogurt
mushrooms: garlic, cream and parsley; pork: apples, cabbage or mustard; lamb: mint, garlic and beans; pizza: a green salad; burgers: fries and a salad; peanut butter: jam or bananas; bread: butter, cheese or soup; apples: cinnamon; avocado: lemon, egg or toast; a blue shirt: grey or beige trousers
black shoes: nearly everything, above all grey or blue; jeans: a white shirt or a sweater; a red dress: black or silver shoes; popcorn: a good film; carrots: peas, ginger or honey; spinach: garlic, cream or eggs; beans: rice, tomatoes or bacon; waffles: fruit, cream or syrup"""
GOES = [p.strip().split(": ", 1) for p in GOES.replace("\n", "; ").split("; ")]
# what: how long it cooks
COOKS = """potatoes|a potato: about 20 minutes; carrots|a carrot: about 10 minutes; broccoli: about 5 minutes; spaghetti|pasta|noodles: about 8 to 10 minutes; rice: about 15 minutes; brown rice: about 35 minutes; corn|corn on the cob: about 8 minutes; lentils: about 25 minutes
green beans: about 8 minutes; peas: about 4 minutes; cauliflower: about 10 minutes; cabbage: about 15 minutes; beets: about 40 minutes; a sweet potato|sweet potatoes: about 25 minutes; dumplings: about 10 minutes; asparagus: about 10 minutes; spinach: about 2 minutes; chickpeas: about an hour, after a night in water"""
COOKS = [(x.strip().split("|"), y.strip()) for x, y in (p.split(": ", 1) for p in COOKS.replace("\n", "; ").split("; "))]
BAKES = """a chicken|chicken: about an hour and a half at 180 degrees; a pizza|pizza: about 12 minutes in a very hot oven; cookies: about 12 minutes at 180 degrees; a cake: about 40 minutes at 180 degrees; bread|a loaf of bread: about 40 minutes at 220 degrees; muffins: about 20 minutes at 180 degrees
salmon|fish: about 15 minutes at 200 degrees; a potato|potatoes: about an hour at 200 degrees; lasagna: about 40 minutes at 180 degrees; a pie: about 45 minutes at 190 degrees; brownies: about 25 minutes at 180 degrees; a turkey: about three to four hours, depending on its size"""
BAKES = [(x.strip().split("|"), y.strip()) for x, y in (p.split(": ", 1) for p in BAKES.replace("\n", "; ").split("; "))]

RELATIVES = [w for w in "mom|dad|mother|father|sister|brother|wife|husband|son|daughter|grandma|grandpa|aunt|uncle|cousin|boss|teacher|neighbor|neighbour|friend|roommate|colleague|coworker|boyfriend|girlfriend|landlord|best friend|little boy|little girl|nephew|niece|grandson|granddaughter|coach|kids|parents|team|little brother|little sister|big sister|old friend|new colleague".split("|")]
ASK_NOTE = "write|write me|can you write|could you write|please write|help me write|make up|compose|give me|i need|come up with|can you make|draft|i want to send|write down|think of"
# what the note is for: its text, where {n} is ", Name" or nothing
NOTES = """birthday message|birthday wish|birthday greeting|birthday card|birthday text|happy birthday message: Happy birthday{n}! I wish you health, joy and many good moments in the year ahead.
good night message|good night text|goodnight message|goodnight text|bedtime message: Good night{n}! Sleep well and have sweet dreams.
good morning message|good morning text|morning text|morning greeting: Good morning{n}! I hope you slept well and have a lovely day.
good luck message|good luck text|good luck note|good luck wish: Good luck{n}! I believe in you, and I am sure you will do well.
get well message|get well card|get well soon message|get well note|get well wish: Get well soon{n}! Rest as much as you need. I am thinking of you.
congratulations message|congratulation card|message of congratulations|note to congratulate: Congratulations{n}! I am so proud of you and happy for you.
welcome message|welcome note|message to say welcome|note to welcome: Welcome{n}! It is so good to have you here.
farewell message|farewell card|goodbye message|farewell note|goodbye card: Goodbye{n}, and all the best! We will miss you.
anniversary message|anniversary card|anniversary wish|happy anniversary message: Happy anniversary{n}! May many more happy years follow.
love note|love message|sweet message|romantic message|cute text|love letter: My dear{n}, you make every day brighter. I love you.
message that i am running late|text that i'm late|message that i will be late|text saying i'm running late|note that i am late: Hello{n}, I am sorry, I am running a little late. I will be there as soon as I can.
message that i miss them|i miss you message|i miss you text|message saying i miss you: I miss you{n}! I hope we see each other very soon.
message to cheer up|note to cheer up|message to make someone smile|kind note|nice message|nice note|sweet note|encouraging note|encouraging message|word of encouragement: You are doing great{n}! I am thinking of you and wish you a bright day.
reminder|reminder message|friendly reminder|note as a reminder: Hello{n}, this is a friendly reminder. Please do not forget it. Thank you!
invitation to dinner|dinner invitation|message to invite them to dinner|invitation for dinner: Hello{n}! Would you like to come to dinner on Saturday at seven? I would be very happy.
note about the noise|message about the loud music|complaint about the noise|polite note about the noise: Hello{n}, the music is quite loud in the evening. Could you please turn it down after ten? Thank you very much!
message about the broken heater|email about the broken heating|message about the leaking tap|complaint about the broken sink|note about the broken light: Hello{n}, something in my flat is broken. Could you please have it repaired soon? Thank you very much!
request for a day off|email to ask for a day off|message to ask for a day off|message asking for time off: Hello{n}, may I please take a day off next week? I will finish my work before. Thank you very much!
message that i am sick|text that i'm sick|message that i can't come today|note that i am ill|message to call in sick: Hello{n}, I am sorry, but I am ill and cannot come today. I will write again as soon as I know more.
message to cancel our plans|text to cancel the meeting|message to cancel dinner|text to cancel our date: Hello{n}, I am sorry, but I have to cancel. Can we find another day soon?
message for a new baby|card for a new baby|baby shower card|message for the birth of a baby: Congratulations on the little one! I wish you health, joy and many sweet moments together.
sympathy card|condolence message|message of sympathy|sympathy note: I am so sorry for your loss{n}. My thoughts are with you.
thank-you note|thank you note|thank you card|thank you message|thank-you message|note to say thanks|note to say thank you|thank you text: Thank you so much{n}! It was very kind of you, and I will not forget it.
apology|sorry note|apology message|apology text|message to say sorry|note to say sorry: I am sorry{n}. I did not mean to hurt you, and I will do better next time.
wedding card|wedding message|message for a wedding|wedding wish: I wish you a long and happy life together, full of love and laughter.
christmas card|christmas message|christmas greeting: Merry Christmas{n}! I wish you peaceful days and a good start into the new year.
new year message|new year's wish|new year greeting: Happy New Year{n}! I wish you health, joy and good luck.
valentine|valentine's card|valentine's day message: Roses are red, violets are blue, and nobody makes me as happy as you."""
NOTES = [(x.split("|"), y) for x, y in (line.split(": ", 1) for line in NOTES.split("\n"))]
NAMING = {
    "puppy|dog|kitten|cat|hamster|rabbit|goldfish|parrot|turtle|pony|horse|guinea pig|pet|fish|bird|bunny|lizard|snake|hen|cow|goat|pig|duck|frog|hedgehog|teddy bear|stuffed animal|plush toy|snowman|robot|plant|cactus|donkey|llama|lamb|mouse|ferret|canary|spider": "How about Milo, Luna, Coco or Pepper?",
    "baby girl|girl|daughter|niece|doll|princess": "How about Clara, Emma, Mia or Rosa?",
    "baby boy|boy|son|nephew|knight|pirate|prince": "How about Ben, Leo, Oscar or Paul?",
    "band|team|football team|quiz team|group chat|club|book club|choir|bowling team|running group|softball team|trivia team|chess club|gang|study group|dance group": "How about \"The Night Owls\", \"Happy Foxes\" or \"Blue Rockets\"?",
    "shop|cafe|café|bakery|restaurant|company|business|bar|boat|ship|blog|podcast|flower shop|coffee shop|bookshop|bookstore|food truck|hotel|app|website|startup|salon|farm|car|store|clothing shop|sailboat|band bus|toy store|pizza place|bike|hair salon|ice cream shop|candle shop|garden|house|cottage|video channel|newsletter|gym|tea shop|bicycle|horse farm|truck": "How about \"Blue Wave\", \"Morning Star\" or \"North Wind\"?",
}
NAMING = [(k.split("|"), v) for k, v in NAMING.items()]
# what an asking person did, thinks or owns: only that person can know
MY_THINGS = "keys|glasses|phone|wallet|bag|purse|umbrella|socks|other sock|left shoe|passport|charger|remote|car keys|car|headphones|notebook|jacket|scarf|hat|gloves|watch|ring|ticket|coat|lunch box|backpack|water bottle|pen|book|homework|tablet|laptop|cat|dog|bike|shoes|sunglasses|earrings|mail|slippers|tape measure|cup of coffee|sandwich|list|lipstick|toothbrush|hammer|scissors|badge|hairbrush|blue sweater|swimsuit|recipe book|birthday card|tea|screwdriver"
DID = "eat for lunch|have for lunch|eat for breakfast|have for dinner|eat yesterday|dream last night|dream about|do last night|do last summer|do yesterday|do this morning|buy yesterday|wear yesterday|say to her|say to my boss|get for my birthday|cook on sunday|watch last night|read last week|promise my sister|forget|forget at home|write on the list|learn at school|order|name my first pet|have in my pocket|do on my last birthday|have with my coffee"
AM = "thinking|thinking about|thinking of|wearing|holding in my hand|holding|looking at|eating|drinking|listening to|reading|feeling|doing right now|doing|hiding|sitting on|cooking|hiding behind my back"
OURS = "birthday|phone number|address|middle name|favorite song|favourite song|favorite color|shoe size|password|blood type|zodiac sign|best friend's name|dog's name|cat's name|mother's name|sister's name|last name|wifi password|job|age|height|weight|mood|appointment|flight number|locker number|grandmother's name|teacher's name|pin|license plate|doctor's name|favorite movie|eye color|boss's name|neighbor's name|hometown|weekend plan|secret|dentist's name|hair color|email address|room number|new address"
PRIVATE = "I do not know that. You have not told me in this chat."
FUTURE = "I do not know the future, but I wish you all the best."


def in_words(n):
    if n < 20:
        return TEENS[n]
    return "a hundred" if n == 100 else TENS[n // 10] + ("" if n % 10 == 0 else "-" + TEENS[n % 10])


def said(n, r):
    """A number as a word, now and then in digits."""
    w = in_words(n)
    return str(n) if r.random() < 0.2 else w.replace("-", " ") if r.random() < 0.3 else w


class Home:
    def __init__(self, open_talk, animals):
        self.open, self.animals = open_talk, animals

    # ---- numbers and the calendar ------------------------------------------------------------

    def worded(self, r):
        """Sums of one step in words, and parts of a number."""
        x = r.randrange(12)
        s = lambda n: said(n, r)
        lead = lambda w: r.choice([f"what is {w}", f"what's {w}", f"how much is {w}", w, f"calculate {w}", f"can you tell me {w}", f"tell me {w}", f"do you know what {w} is", f"can you work out {w}", f"quick, what's {w}", f"whats {w}", f"i need to know {w}", f"hey what is {w}"])
        if x in (0, 1):
            a, b = r.choice([(r.randint(1, 20), r.randint(1, 20)), (r.randint(1, 20), r.randint(1, 20)), (r.randint(1, 89), r.randint(1, 99))])
            q = lead(r.choice([f"{s(a)} plus {s(b)}", f"{s(a)} and {s(b)}", f"the sum of {s(a)} and {s(b)}", f"{s(a)} added to {s(b)}"])) if r.random() < 0.7 else r.choice([f"add {s(a)} and {s(b)}", f"what do {s(a)} and {s(b)} make", f"what do you get when you add {s(a)} and {s(b)}", f"what number is {s(b)} more than {s(a)}", f"what is {s(b)} more than {s(a)}", f"what do you get if you add {s(b)} to {s(a)}", f"{s(a)} plus {s(b)} is what", f"{s(a)} plus {s(b)} equals"])
            if "added to" in q:
                return q, f"{b} + {a} = {a + b}.", None
            return q, f"{a} + {b} = {a + b}.", None
        if x in (2, 3):
            a, b = sorted(r.choice([(r.randint(1, 20), r.randint(1, 20)), (r.randint(1, 99), r.randint(1, 20)), (10 * r.randint(1, 10), r.randint(1, 20))]))[::-1]
            q = lead(r.choice([f"{s(a)} minus {s(b)}", f"{s(a)} take away {s(b)}", f"{s(a)} less {s(b)}"])) if r.random() < 0.7 else r.choice([f"take {s(b)} from {s(a)}", f"subtract {s(b)} from {s(a)}", f"what is {s(b)} less than {s(a)}", f"what number is {s(b)} less than {s(a)}", f"what is left if i take {s(b)} away from {s(a)}", f"{s(a)} minus {s(b)} is what", f"what do you get if you take {s(b)} from {s(a)}", f"{s(a)} minus {s(b)} equals"])
            return q, f"{a} - {b} = {a - b}.", None
        if x in (4, 5):
            a, b = r.randint(1, 12), r.randint(1, 12)
            if r.random() < 0.15:
                a, b = r.choice([(r.randint(2, 9), 10 * r.randint(2, 9)), (10, r.randint(2, 30)), (100, r.randint(2, 20))])
            q = lead(r.choice([f"{s(a)} times {s(b)}", f"{s(a)} times {s(b)}", f"{s(a)} multiplied by {s(b)}"])) if r.random() < 0.75 else r.choice([f"multiply {s(a)} by {s(b)}", f"what do you get when you multiply {s(a)} and {s(b)}", f"{s(a)} times {s(b)} equals", f"what does {s(a)} times {s(b)} make", f"{s(a)} times {s(b)} is what"])
            return q, f"{a} * {b} = {a * b}.", None
        if x == 6:
            b, c = r.randint(2, 12), r.randint(1, 12)
            q = lead(r.choice([f"{s(b * c)} divided by {s(b)}", f"{s(b * c)} over {s(b)}"])) if r.random() < 0.7 and b * c <= 100 else r.choice([f"divide {b * c} by {s(b)}", f"how many times does {s(b)} go into {b * c}", f"how often does {s(b)} fit into {b * c}"])
            return q, f"{b * c} / {b} = {c}.", None
        if x in (7, 8):
            n = r.choice([r.randint(1, 25), r.randint(1, 50), 5 * r.randint(1, 20)])
            w = s(2 * n) if 2 * n <= 100 else str(2 * n)
            q = lead(r.choice([f"half of {w}", f"one half of {w}", f"half of {w}", f"a half of {w}"])) if r.random() < 0.8 else r.choice([f"half of {w} is", f"cut {w} in half", f"divide {w} in half", f"what do i get if i halve {w}"])
            return q, f"Half of {2 * n} is {n}.", None
        if x == 9:
            part, k = r.choice([("third", 3), ("third", 3), ("quarter", 4), ("quarter", 4), ("fifth", 5), ("tenth", 10), ("sixth", 6), ("eighth", 8)])
            n = r.randint(1, 12)
            w = s(k * n) if k * n <= 100 else str(k * n)
            one = ("an " if part == "eighth" else "a ") + part
            return lead(r.choice([f"{one} of {w}", f"one {part} of {w}"])), f"{upper_first(one)} of {k * n} is {n}.", None
        if x == 10:
            n = r.choice([r.randint(1, 20), r.randint(1, 50)])
            q = lead(r.choice([f"twice {s(n)}", f"double {s(n)}", f"two times {s(n)}", f"the double of {s(n)}"])) if r.random() < 0.8 else r.choice([f"double {s(n)}", f"what is {s(n)} doubled", f"what do i get if i double {s(n)}"])
            return q, f"Twice {n} is {2 * n}.", None
        n = r.randint(1, 98)
        up = r.random() < 0.5
        q = r.choice([f"what number comes {'after' if up else 'before'} {s(n)}", f"which number is {'after' if up else 'before'} {s(n)}", f"what comes {'after' if up else 'before'} {s(n)}", f"the number {'after' if up else 'before'} {s(n)}"])
        return q, f"The number {'after' if up else 'before'} {n} is {n + (1 if up else -1)}.", None

    def calendar(self, r):
        x = r.randrange(9)
        m = r.choice(list(MONTHS))
        i = list(MONTHS).index(m)
        if x == 0:
            n = MONTHS[m]
            q = r.choice([f"how many days are there in {m}", f"how many days has {m}", f"how many days has {m} got", f"how long is {m}", f"does {m} have 30 or 31 days", f"how many days in {m}", f"number of days in {m}", f"does {m} have {r.choice([30, 31])} days", f"is {m} {r.choice([30, 31])} days long", f"what's the number of days in {m}", f"tell me how many days {m} has"])
            return q, f"{m} has {n} days" + (", or 29 in a leap year." if i == 1 else "."), None
        if x == 1:
            way = r.randrange(3)
            if way == 0:
                return r.choice(["which months have 31 days", "what months have 31 days", "name the months with 31 days", "months with 31 days", "which months are 31 days long"]), "January, March, May, July, August, October and December have 31 days.", None
            if way == 1:
                return r.choice(["which months have 30 days", "what months have 30 days", "name the months with 30 days", "months with 30 days", "which months are 30 days long"]), "April, June, September and November have 30 days.", None
            return r.choice(["which month is the shortest", "what is the shortest month", "what's the shortest month of the year", "which month has less than 30 days"]), "February is the shortest month, with 28 days, or 29 in a leap year.", None
        if x == 2:
            q = r.choice([f"what is the {ORDER[i]} month of the year", f"which month is the {ORDER[i]}", f"what's the {ORDER[i]} month", f"name the {ORDER[i]} month", f"what month is number {i + 1}", f"which month comes {ORDER[i]} in the year"])
            return q, f"{m} is the {ORDER[i]} month of the year.", None
        if x == 3:
            q = r.choice([f"which number is {m}", f"what number is the month of {m}", f"what month number is {m}", f"{m} is which month of the year", f"is {m} the {r.choice(ORDER)} month"])
            return q, f"{m} is the {ORDER[i]} month of the year.", None
        if x == 4:
            s = SEASONS[(i + 1) % 12 // 3]
            q = r.choice([f"which season is {m} in", f"what season is it in {m}", f"is {m} in {r.choice(SEASONS)}", f"what season is {m}", f"in which season is {m}", f"is it {r.choice(SEASONS)} in {m}", f"{m} is in which season"])
            return q, f"In the north, {m} is in {s}.", None
        if x == 5:
            j = r.randrange(4)
            up = r.random() < 0.5
            side = "after" if up else "before"
            w = r.choice(["fall", "autumn"]) if j == 3 else SEASONS[j]
            q = r.choice([f"which season comes {side} {w}", f"what season follows {w}" if up else f"what season is before {w}", f"what comes {side} {w}", f"the season {side} {w}", f"what is the season {side} {w}", f"which season is {side} {w}"])
            return q, f"The season {side} {SEASONS[j]} is {SEASONS[(j + (1 if up else -1)) % 4]}.", None
        if x == 6:
            k, d = r.randint(2, 6), r.choice(DAYS)
            up = r.random() < 0.7
            o = DAYS[(DAYS.index(d) + (k if up else -k)) % 7]
            q = r.choice([f"what day is it {in_words(k)} days {'after' if up else 'before'} {d}", f"what day is {k} days {'after' if up else 'before'} {d}", f"which day comes {in_words(k)} days {'after' if up else 'before'} {d}"] + ([f"if today is {d}, what day is it in {in_words(k)} days", f"today is {d}. what day is in {k} days", f"it is {d}. which day will it be in {in_words(k)} days"] if up else [f"if today is {d}, what day was it {in_words(k)} days ago"]))
            if k == 2 and r.random() < 0.5:
                q = r.choice([f"if today is {d}, what day is the day after tomorrow", f"today is {d}. what is the day after tomorrow"]) if up else f"if today is {d}, what was the day before yesterday"
            return q, f"{upper_first(in_words(k))} days {'after' if up else 'before'} {d} is {o}.", None
        if x == 7:
            d = r.choice(DAYS)
            up = r.random() < 0.5
            side, o = ("after", DAYS[(DAYS.index(d) + 1) % 7]) if up else ("before", DAYS[DAYS.index(d) - 1])
            q = r.choice([f"what's the day {side} {d}", f"which day is right {side} {d}", f"what day follows {d}" if up else f"what day precedes {d}", f"tell me the day {side} {d}", f"{'tomorrow' if not up else 'yesterday'} {'is' if not up else 'was'} {d}. what is today", f"today is {d}. what {'is tomorrow' if up else 'was yesterday'}", f"does {o} come {side} {d}"])
            return q, f"The day {side} {d} is {o}.", None
        k, (big, small, n) = r.randint(2, 12), r.choice([("minute", "second", 60), ("hour", "minute", 60), ("day", "hour", 24), ("week", "day", 7), ("year", "month", 12), ("decade", "year", 10), ("century", "year", 100)])
        if n == 24 or (n == 12 and k > 6):
            k = r.randint(2, 4)
        many = "centuries" if big == "century" else big + "s"
        q = r.choice([f"how many {small}s are there in {r.choice([in_words(k), k])} {many}", f"how many {small}s is {in_words(k)} {many}", f"how many {small}s make {in_words(k)} {many}", f"{in_words(k)} {many} are how many {small}s", f"how long is {in_words(k)} {many} in {small}s"])
        return q, f"{upper_first(in_words(k))} {many} are {k * n} {small}s.", None

    # ---- things and animals ------------------------------------------------------------------

    def scale(self, r):
        words, rows = r.choice(list(SCALES.items()))
        row = r.choice(rows)
        items = [w.lstrip("=") for w in row.split(";")]
        i, j = sorted(r.sample(range(len(items)), 2))
        word = r.choice(words.split("|"))
        best, rest = (items[i], items[j]) if word in LESS or (word == "shorter") else (items[j], items[i])
        a, b = r.sample([best, rest], 2)
        q = r.choice([f"which is {word}, {a} or {b}", f"what is {word}, {a} or {b}", f"what's {word}, {a} or {b}", f"which one is {word}: {a} or {b}", f"is {a} {word} than {b}", f"is {a} or {b} {word}", f"{a} or {b}, which is {word}", f"which of the two is {word}, {a} or {b}", f"tell me what is {word}: {a} or {b}"]
                     + ([f"which weighs {'more' if word == 'heavier' else 'less'}, {a} or {b}", f"what weighs {'more' if word == 'heavier' else 'less'}, {a} or {b}"] if word in ("heavier", "lighter") else [])
                     + ([f"which {'goes faster' if word == 'faster' else 'goes slower'}, {a} or {b}"] if word in ("faster", "slower") else [])
                     + ([f"what costs {'more' if word == 'more expensive' else 'less'}, {a} or {b}"] if word in ("more expensive", "cheaper") else [])
                     + ([f"which takes longer, {a} or {b}", f"what lasts longer, {a} or {b}"] if word == "longer" and "second" in row else []))
        ans = f"{upper_first(best)} is {word} than {rest}."
        if " than " in q and q.startswith("is "):
            ans = ("Yes, " if a == best else "No, ") + ans[0].lower() + ans[1:]
        return q, ans, KNOWN

    def able(self, r):
        """What the animals of a class can do or have."""
        n = r.choice(list(self.animals))
        kind, legs = self.animals[n]["kind"], self.animals[n]["legs"]
        water = n in ("whale", "dolphin", "seal", "walrus", "otter", "turtle", "crocodile", "alligator", "hippo", "beaver", "crab", "lobster", "octopus", "frog", "newt", "duck", "swan", "goose", "penguin", "pelican", "seagull", "flamingo") or kind == "fish"
        facts = [("see", n != "mole"), ("breathe under water", kind == "fish" or n in ("crab", "lobster", "octopus")), ("swim", True if water or n in ("dog", "elephant", "tiger", "bear", "horse", "snake", "rat", "polar bear") else None),
                 ("fly", (kind == "bird" and n not in ("penguin", "ostrich", "emu")) or n in ("bat", "bee", "butterfly", "fly", "beetle", "mosquito", "wasp", "ladybug", "dragonfly", "moth")),
                 ("hear", True if kind in ("mammal", "bird", "fish", "amphibian") else None), ("talk", n == "parrot"), ("read", False), ("lay eggs", {"mammal": False}.get(kind, None if n in ("shark", "scorpion") else True)),
                 ("bark", n in ("dog", "fox", "seal")), ("meow", n == "cat"), ("give milk", kind == "mammal")]
        has = [("fur", kind == "mammal" and n not in ("whale", "dolphin", "elephant", "hippo", "rhino", "walrus", "pig")), ("feathers", kind == "bird"), ("a tail", True if (kind in ("mammal", "fish", "bird", "reptile") and n not in ("gorilla", "chimpanzee", "koala", "hamster")) else None), ("wings", kind == "bird" or n in ("bat", "bee", "butterfly", "fly", "beetle", "mosquito", "wasp", "ladybug")),
               ("fins", kind == "fish" or n in ("whale", "dolphin")), ("gills", kind == "fish"), ("a beak", kind == "bird" or n == "octopus"), ("hooves", n in ("horse", "cow", "sheep", "pig", "goat", "deer", "zebra", "giraffe", "donkey", "moose", "camel", "llama", "buffalo")), ("bones", kind not in ("insect", "arachnid", "crustacean", "mollusc") and n != "shark"),
               ("a shell", n in ("snail", "turtle", "tortoise", "crab", "lobster")), ("ears", True if kind == "mammal" else None), ("eyes", True), ("a heart", True), ("legs", legs > 0)]
        for _ in range(20):
            if r.random() < 0.55:
                what, yes = r.choice(facts)
                many = r.random() < 0.6
                who = plural(n) if many and n not in ("sheep", "deer", "salmon", "trout", "cod", "tuna", "mouse", "goose", "wolf", "octopus", "fish", "moose") else article(n)
                if yes is None:
                    continue
                q = r.choice([f"can {who} {what}", f"are {who} able to {what}" if not who.startswith(("a ", "an ")) else f"is {who} able to {what}", f"do you know if {who} can {what}", f"can {who} really {what}"])
                return q, (f"Yes, {who} can {what}." if yes else f"No, {who} cannot {what}."), KNOWN
            what, yes = r.choice(has)
            if yes is None:
                continue
            one = article(n)
            q = r.choice([f"does {one} have {what}", f"has {one} got {what}", f"does {one} have {what} or not"] + ([f"do {plural(n)} have {what}"] if n not in ("mouse", "goose", "wolf") else []))
            return q, (f"Yes, {one} has {what}." if yes else f"No, {one} has no {what.removeprefix('a ')}."), KNOWN
        return self.able(r)

    def members(self, r):
        kinds, all_ = r.choice(KINDS)
        what = r.choice(kinds)
        k = r.randint(2, min(4, len(all_)))
        n = r.choice([in_words(k), in_words(k), str(k)])
        shown = all_[:k]
        if r.random() < 0.25:
            n, shown = r.choice(["some", "a few", "some"]), all_[:3]
        q = r.choice([f"name {n} {what}", f"give me {n} {what}", f"list {n} {what}", f"tell me {n} {what}", f"can you name {n} {what}", f"can you give me {n} {what}", f"i need {n} {what}", f"what are {n} {what}", f"suggest {n} {what}", f"could you list {n} {what}", f"do you know {n} {what}", f"can you think of {n} {what}",
                      f"think of {n} {what}", f"write down {n} {what}", f"say {n} {what}", f"help me find {n} {what}", f"give me {n} examples of {what}" if n not in ("some", "a few") else f"give me examples of {what}", f"i am looking for {n} {what}"])
        return q, upper_first(listing(shown)) + ".", f"I name {in_words(len(shown))} of them."

    def example(self, r):
        kind, members = r.choice(EXAMPLES)
        one = r.choice(members)
        an = article(kind)
        x = r.random()
        if x < 0.6:
            one = members[0]
            q = r.choice([f"give me an example of {an}", f"name {an}", f"can you name {an}", f"an example of {an}", f"what is an example of {an}", f"what's an example of {an}", f"tell me {an}", f"give me {an}", f"think of {an}", f"name one {kind}", f"do you know {an}", f"give me one {kind}", f"say {an}", f"name me {an}", f"can you give me an example of {an}", f"one example of {an}"])
            a = f"{upper_first(one)} is {an}."
        else:
            q = r.choice([f"is {one} {an}", f"is {one} really {an}", f"would you call {one} {an}", f"does {one} count as {an}", f"{one} is {an}, right", f"is it true that {one} is {an}"])
            a = f"Yes, {one} is {an}."
        return q, a, KNOWN

    def counts(self, r):
        part, n = r.choice(PARTS)
        q = r.choice([f"how many {part} do people have", f"how many {part} does a person have", f"how many {part} do i have", f"how many {part} does a human have", f"how many {part} do humans have", f"how many {part} do we have", f"number of {part} of a person", f"how many {part} has a human", f"how many {part} are normal", f"how many {part} does a man have", f"how many {part} does a woman have", f"how many {part} does a child have"])
        if n != "one":
            return q, f"Most people have {n} {part}.", KNOWN
        return q, f"Most people have one {part.rstrip('s') if part != 'noses' else 'nose'}.", KNOWN

    def letter(self, r):
        i = r.randrange(26)
        c = chr(65 + i)
        x = r.randrange(4)
        up = i == 0 or (i < 25 and r.random() < 0.5)
        o, side = (chr(66 + i), "after") if up else (chr(64 + i), "before")
        w = r.choice([c, c, c.lower(), f'"{c}"'])
        if x < 2:
            q = r.choice([f"what letter comes {side} {w}", f"which letter comes {side} {w}", f"what letter is {side} {w}", f"what comes {side} the letter {w}", f"the letter {side} {w}", f"which letter {'follows' if up else 'is before'} {w}", f"what letter comes {side} {w} in the alphabet"])
            return q, f"The letter {o} comes {side} {c}.", None
        place = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(i + 1, "th")
        th = ORDER[i] if i < 12 else f"{i + 1}{place}"
        if x == 2:
            q = r.choice([f"what is the {th} letter of the alphabet", f"which letter is the {th} in the alphabet", f"the {th} letter of the alphabet", f"what's the {th} letter", f"which letter of the alphabet is the {th}"])
        elif i in (0, 25):
            return r.choice([f"what is the {'first' if i == 0 else 'last'} letter of the alphabet", f"what's the {'first' if i == 0 else 'last'} letter", f"which letter comes {'first' if i == 0 else 'last'}"]), f"{c} is the {'first' if i == 0 else 'last'} letter of the alphabet.", None
        else:
            q = r.choice([f"which place has {w} in the alphabet", f"what number is the letter {w}", f"which letter of the alphabet is {w}", f"is {c} a vowel"])
            if q.endswith("vowel"):
                return q, (f"Yes, {c} is a vowel." if c in "AEIOU" else f"No, {c} is a consonant." if c != "Y" else "Y can be a vowel or a consonant."), None
        return q, f"{c} is the {th} letter of the alphabet.", None

    def together(self, r):
        """How many legs or other parts some animals or things have in all."""
        k = r.randint(2, 10)
        if r.random() < 0.6:
            n = r.choice([a for a in self.animals if self.animals[a]["legs"] and a not in ("crab", "lobster", "octopus")])
            each, part = self.animals[n]["legs"], "legs"
            many = {"mouse": "mice", "goose": "geese", "wolf": "wolves", "sheep": "sheep", "deer": "deer", "moose": "moose", "fly": "flies", "butterfly": "butterflies", "octopus": "octopuses", "fox": "foxes"}.get(n) or plural(n)
        else:
            many, each, part = r.choice([("cars", 4, "wheels"), ("bicycles", 2, "wheels"), ("tricycles", 3, "wheels"), ("hands", 5, "fingers"), ("people", 2, "hands"), ("people", 2, "eyes"), ("chairs", 4, "legs"), ("stools", 3, "legs"), ("people", 10, "fingers"), ("cats", 4, "paws"), ("birds", 2, "wings"), ("weeks", 7, "days"), ("triangles", 3, "corners"), ("squares", 4, "sides"), ("dogs", 1, "tails"), ("cows", 1, "heads"), ("shirts", 2, "sleeves"), ("shoes", 1, "soles"), ("tables", 4, "legs"), ("glasses", 2, "lenses")])
        s = said(k, r)
        q = r.choice([f"how many {part} do {s} {many} have", f"how many {part} have {s} {many}", f"how many {part} do {s} {many} have in total", f"{s} {many} have how many {part}", f"i have {s} {many}. how many {part} is that", f"how many {part} are there on {s} {many}", f"there are {s} {many}. how many {part} are there"])
        return q, f"{k} * {each} = {k * each}, so it is {k * each} {part}.", None

    def pets(self, r):
        """Two kinds of things counted together."""
        kinds, total = r.choice([("dogs cats hamsters birds rabbits fish", "pets"), ("apples pears oranges bananas plums", "pieces of fruit"), ("sons daughters", "children"), ("brothers sisters", "siblings"), ("cows sheep goats pigs horses", "animals"), ("roses tulips daisies", "flowers"), ("pens pencils crayons", "things to write with"), ("cars vans trucks", "vehicles"), ("aunts uncles", "aunts and uncles"), ("shirts jackets sweaters", "pieces of clothing"), ("cakes pies", "desserts"), ("boys girls", "children"), ("forks spoons knives", "pieces of cutlery")])
        one, two = r.sample(kinds.split(), 2)
        a, b = r.randint(2, 12), r.randint(2, 12)
        s, t = said(a, r), said(b, r)
        q = r.choice([f"i have {s} {one} and {t} {two}. how many {total} do i have", f"{s} {one} and {t} {two}: how many {total} is that", f"there are {s} {one} and {t} {two}. how many {total} are there", f"my friend has {s} {one} and {t} {two}. how many {total} is that", f"we have {s} {one} and {t} {two}. how many {total} are there in all"])
        return q, f"{a} + {b} = {a + b}, so it is {a + b} {total}.", None

    def logic(self, r):
        """One small step of thinking in words."""
        a, b = name(r), name(r)
        while a == b:
            b = name(r)
        more, less = r.choice([("taller", "shorter"), ("older", "younger"), ("faster", "slower"), ("bigger", "smaller"), ("stronger", "weaker"), ("richer", "poorer"), ("heavier", "lighter"), ("louder", "quieter"), ("happier", "sadder")])
        if r.random() < 0.5:
            more, less = less, more
        x = r.randrange(7)
        if x < 2:
            same = r.random() < 0.4
            word, who = (more, a) if same else (less, b)
            q = r.choice([f"{a} is {more} than {b}. who is {word}", f"{a} is {more} than {b}, so who is {word}", f"if {a} is {more} than {b}, who is {word}", f"who is {word} if {a} is {more} than {b}"])
            return q, f"{who} is {word}.", None
        if x == 2:
            age, k = r.randint(5, 80), r.randint(1, 20)
            up = r.random() < 0.6 or age <= k
            q = r.choice([f"how old will i be in {said(k, r)} years if i'm {age} now", f"i am {age}. how old will i be in {said(k, r)} years", f"i'm {age} now. how old am i in {said(k, r)} years", f"{a} is {age}. how old will {a} be in {said(k, r)} years"]) if up else r.choice([f"i am {age}. how old was i {said(k, r)} years ago", f"how old was i {said(k, r)} years ago if i am {age} now", f"{a} is {age}. how old was {a} {said(k, r)} years ago"])
            v = age + k if up else age - k
            return q, f"{age} {'+' if up else '-'} {k} = {v}, so the age is {v}.", None
        if x == 3:
            n = r.randint(6, 60)
            k = r.randint(2, n - 2)
            one, two, all_, place = r.choice([("girls", "boys", "kids", "in a class"), ("women", "men", "people", "in a room"), ("cats", "dogs", "pets", "in a shelter"), ("red", "blue", "balls", "in a box"), ("boys", "girls", "children", "on the bus"), ("apples", "pears", "fruits", "in a bowl"), ("white", "black", "sheep", "on a hill"), ("adults", "children", "guests", "at a party"), ("forks", "spoons", "things", "in a drawer")])
            q = r.choice([f"there are {n} {all_} {place} and {k} are {one}. how many are {two}", f"{n} {all_} are {place}. {k} of them are {one}, the rest are {two}. how many {two} are there", f"of {n} {all_} {place}, {k} are {one}. how many are {two}"])
            return q, f"{n} - {k} = {n - k}, so it is {n - k}.", None
        if x == 4:
            h = r.randint(1, 9)
            t = r.randint(h + 1, 12)
            what = r.choice(["train", "bus", "flight", "movie", "class", "meeting", "party", "show", "game"])
            goes = "leaves" if what in ("train", "bus", "flight") else "starts"
            q = r.choice([f"my {what} {goes} at {t} and it's {h} now. how long do i have to wait", f"it is {h} o'clock and the {what} {goes} at {t}. how long is that", f"the {what} {goes} at {t} o'clock. it is {h} now. how many hours are left", f"it's {h} now. how long until {t} o'clock", f"how many hours are between {h} and {t} o'clock", f"how long is it from {h} to {t} o'clock"])
            return q, f"{t} - {h} = {t - h}, so it is {t - h} hour{'s' if t - h > 1 else ''}.", None
        m, n = r.sample(range(1, 100), 2)
        big = r.random() < 0.5
        q = r.choice([f"is {m} {'more' if big else 'less'} than {n}", f"is {m} {'bigger' if big else 'smaller'} than {n}", f"is {said(m, r)} {'more' if big else 'less'} than {said(n, r)}", f"is {m} {'greater' if big else 'lower'} than {n}"])
        yes = (m > n) == big
        return q, f"{'Yes' if yes else 'No'}, {max(m, n)} is bigger than {min(m, n)}.", None

    def works(self, r):
        what, who = r.choice(WHO)
        v = r.choice(what)
        q = r.choice([f"who {v}", f"who {v}", f"what do you call someone who {v}", f"which job is it when someone {v}", f"what is the name for a person who {v}", f"what is the job of a person who {v}", f"whose job is it? someone {v}", f"which person {v}"])
        return q, f"{upper_first(article(who))} {what[0]}.", KNOWN

    def tint(self, r):
        thing, c = r.choice(TINTS)
        be = "are" if thing.endswith("s") and not thing.endswith(("ss", "us")) else "is"
        w = r.choice(["color", "colour", "color"])
        q = r.choice([f"what {w} {be} {thing}", f"which {w} {be} {thing}", f"what is the {w} of {thing}", f"what {w} {be} {thing} usually", f"do you know what {w} {thing} {be}", f"tell me the {w} of {thing}", f"what {w} does {thing} have" if be == "is" else f"what {w} do {thing} have"])
        return q, f"{upper_first(thing)} {be} {c}.", KNOWN

    def kitchen(self, r):
        x = r.randrange(8)
        ran_out = lambda w: r.choice([f"i have no {w}", f"i am out of {w}", f"we are out of {w}", f"i ran out of {w}", f"i don't have any {w}", f"there is no {w} left", f"i forgot to buy {w}", f"i can't eat {w}", f"we have no {w} at home", f"i am allergic to {w}", f"my son can't have {w}"])
        if x in (0, 1, 2):
            names, a = r.choice(INSTEAD)
            w = r.choice(names)
            bare = w.split(" ", 1)[1] if w.startswith(("a ", "an ")) else w.replace(" in a cake", "")
            dish = r.choice(["a cake", "cookies", "pancakes", "a sauce", "the dough", "soup", "a pie", "dinner", "bread", "a salad"])
            ask = r.choice(["what can i use instead", "what else can i use", "what can i take instead", "what could i use instead", "is there something else i can use", "what do i use now", "any idea what i could use instead", "what works instead", "what would work instead", "what can replace it"])
            if r.random() < 0.5:
                q = r.choice([f"what can i use instead of {w}", f"what can i take instead of {w}", f"what is a good substitute for {w}", f"what could replace {w}", f"what can i substitute for {w}", f"is there a replacement for {w}", f"substitute for {w}", f"what can you use in place of {w}", f"how can i replace {w}", f"do you know an alternative to {w}", f"what works instead of {w}"])
            else:
                q = ran_out(bare) + r.choice([". ", ", ", " and ", "! ", ". "]) + ask
                if r.random() < 0.5 and not w.startswith(("a ", "an ")):
                    q = r.choice([f"i want to make {dish} but ", f"i am making {dish} and ", f"i wanted to bake {dish}, but ", f"i'm cooking {dish} and ", f"i would like to make {dish} but "]) + q
            return q, f"You can use {a}.", None
        if x == 3:
            w, a = r.choice(GOES)
            q = r.choice([f"what goes well with {w}", f"what goes with {w}", f"what should i serve with {w}", f"what can i eat with {w}", f"what fits with {w}", f"what tastes good with {w}", f"what is a good side for {w}", f"what do people eat with {w}", f"what would you serve with {w}", f"what pairs with {w}", f"what matches {w}"])
            if "shirt" in w or "shoes" in w or "dress" in w or w == "jeans":
                q = r.choice([f"what goes well with {w}", f"what goes with {w}", f"what can i wear with {w}", f"what should i wear with {w}", f"what matches {w}", f"what looks good with {w}"])
            return q, f"{upper_first(w)} {'go' if w.endswith('s') else 'goes'} well with {a}.", None
        if x in (4, 5):
            names, a = r.choice(COOKS)
            w = r.choice(names)
            v = r.choice(["boil", "cook", "boil"])
            q = r.choice([f"how long should i {v} {w}", f"how long do i {v} {w}", f"how long does it take to {v} {w}", f"how many minutes do i {v} {w}", f"how long to {v} {w}", f"how long do {w} need to {v}" if w.endswith("s") else f"how long does {w} need to {v}", f"{v} {w} for how long", f"what is the cooking time for {w}", f"when is {w} done" if not w.endswith("s") else f"when are {w} done", f"how long do you {v} {w} for"])
            return q, f"{upper_first(a)} in boiling water. Try a piece to see whether it is soft.", None
        if x == 6:
            names, a = r.choice(BAKES)
            w = r.choice(names)
            v = "roast" if w in ("a chicken", "chicken", "a turkey") and r.random() < 0.5 else "bake"
            q = r.choice([f"how long should i {v} {w}", f"how long do i {v} {w}", f"how long does {w} stay in the oven" if not w.endswith("s") else f"how long do {w} stay in the oven", f"how long do you {v} {w}", f"how long to {v} {w}", f"how hot should the oven be for {w}", f"how long does it take to {v} {w}", f"what temperature for {w}"])
            return q, f"{upper_first(a)}. Look at it now and then, since every oven is different.", None
        w = r.choice("soup|sauce|stew|curry|rice|salad dressing|broth".split("|"))
        way, a = r.choice([("too thin", "Let it boil down without a lid, or stir in a little starch mixed with cold water."), ("too thick", "Add a little water, milk or broth and stir."), ("too bland", "Add a little salt, some herbs or spices, or a splash of lemon juice."), ("full of lumps", "Press it through a sieve, or whisk it well while it is warm.")])
        q = r.choice([f"my {w} is {way}", f"the {w} is {way}", f"i made the {w} {way}", f"what can i do if the {w} is {way}", f"how do i fix {w} that is {way}", f"help, my {w} is {way}", f"my {w} came out {way}"]) + r.choice(["", "", ". what can i do", ", what now", ". how do i fix it"])
        return q, a, None

    # ---- little texts ------------------------------------------------------------------------

    def note(self, r):
        kinds, text = r.choice(NOTES)
        kind, who = r.choice(kinds), r.choice(RELATIVES)
        x = r.random()
        called, n = "", ""
        if x < 0.4:
            n = r.choice(FIRST) if r.random() < 0.6 else name(r)
            called = r.choice([f"my {who} {n}", n, f"my {who}, {n}", f"my {who} called {n}", f"my {who} named {n}"])
        elif x < 0.85:
            called = f"my {who}"
        size = r.choice(["", "", "", "short ", "little ", "nice ", "quick ", "sweet ", "simple ", "funny ", "one sentence "])
        to = f" {r.choice(['for', 'for', 'to'])} {called}" if called else ""
        q = f"{r.choice(ASK_NOTE.split('|'))} {article(size + kind)}{to}".replace(" an one ", " a one ")
        head, mark, tail = next(((kind.partition(m)) for m in (" about ", " that ", " saying ", " asking ") if m in kind), (kind, "", ""))
        if mark and called and r.random() < 0.6:  # the person named before the matter
            q = f"{r.choice(ASK_NOTE.split('|'))} {article(size + head)} to {called}{mark}{tail.replace('the ', r.choice(['the ', 'the ', 'a ', 'my ']))}".replace(" an one ", " a one ")
            return q, text.replace("{n}", f", {n}" if n else ""), None
        if r.random() < 0.1 and called:
            q = r.choice([f"what can i write in {article(kind)}{to}", f"what should i write in {article(kind)}{to}", f"what do i say in {article(kind)}{to}", f"what could i put in {article(kind)}{to}"])
        if r.random() < 0.1:
            q = r.choice([f"i want to {r.choice(['send', 'write'])} {called or 'a friend'} {article(kind)}. can you help", f"can you help me with {article(kind)}{to}", f"i need help with {article(kind)}{to}", f"one sentence for {article(kind)}{to}"])
        return q, text.replace("{n}", f", {n}" if n else "").replace("dear, ", "dear "), None

    def wish(self, r):
        """Say something to somebody."""
        n = r.choice(FIRST) if r.random() < 0.6 else name(r)
        who = r.choice(RELATIVES)
        what, a = r.choice([("good night", "Good night{n}! Sleep well and have sweet dreams."), ("good morning", "Good morning{n}! I hope you slept well and have a lovely day."), ("happy birthday", "Happy birthday{n}! I wish you health, joy and many good moments in the year ahead."), ("hello", "Hello{n}! It is nice to meet you."), ("hi", "Hello{n}! It is nice to meet you."), ("goodbye", "Goodbye{n}! Take care."),
                            ("good luck", "Good luck{n}! I believe in you, and I am sure you will do well."), ("congratulations", "Congratulations{n}! I am so proud of you and happy for you."), ("thank you", "Thank you so much{n}! It was very kind of you, and I will not forget it."), ("happy anniversary", "Happy anniversary{n}! May many more happy years follow."), ("sorry", "I am sorry{n}. I did not mean to hurt you, and I will do better next time."),
                            ("merry christmas", "Merry Christmas{n}! I wish you peaceful days and a good start into the new year."), ("happy new year", "Happy New Year{n}! I wish you health, joy and good luck."), ("get well soon", "Get well soon{n}! Rest as much as you need. I am thinking of you."), ("welcome", "Welcome{n}! It is so good to have you here.")])
        x = r.random()
        if x < 0.35:
            q = r.choice([f"say {what} to {n}", f"say {what} to my {who} {n}", f"can you say {what} to {n}", f"wish {n} {'a ' if what in ('good night', 'good morning') else ''}{what}", f"please say {what} to {n}", f"tell my {who} {n} {what}", f"would you say {what} to my {who} {n}", f"greet my {who} {n} with {what}"])
        elif x < 0.7:
            he = r.choice(["his name is", "her name is", "the name is", "called", "named"])
            q = r.choice([f"say {what} to my {who}, {he} {n}", f"say {what} to my {who}. {he} {n}", f"please say {what} to my {who}, {he} {n}", f"can you say {what} to my {who}? {he} {n}", f"my {who} is here, {he} {n}. say {what}", f"wish my {who} {what}, {he} {n}"])
        else:
            n = ""
            q = r.choice([f"say {what} to my {who}", f"can you say {what} to my {who}", f"please say {what} to my {who}", f"wish my {who} {what}", f"tell my {who} {what}", f"say {what} to the {r.choice(['family', 'class', 'kids', 'team', 'whole family', 'neighbors'])}", f"say {what} to everyone"])
        return q, a.replace("{n}", f", {n}" if n else ""), None

    def naming(self, r):
        kinds, a = r.choice(NAMING)
        k = r.choice(kinds)
        adj = r.choice(["", "", "", "good ", "nice ", "funny ", "cute ", "cool ", "cheerful ", "short ", "pretty ", "unusual "])
        mine = r.choice(["a", "my", "my new", "our", "our new", "a little", "my little", "a small", "a big", "a black", "a white", "a lazy", "my friend's", "my sister's"])
        mine = article(k) if mine == "a" else f"{mine} {k}"
        some = r.choice([article(adj + "name"), f"some {adj}names", article(adj + "name"), f"three {adj}names"])
        q = r.choice([f"give me {some} for {mine}", f"suggest {some} for {mine}", f"what should i name {mine}", f"what is {article(adj + 'name')} for {mine}", f"what's {article(adj + 'name')} for {mine}", f"i need {some} for {mine}", f"help me name {mine}", f"how should i call {mine}", f"what can i call {mine}", f"can you think of {some} for {mine}",
                      f"think of {some} for {mine}", f"what would you name {mine}", f"come up with {some} for {mine}", f"{adj}name ideas for {mine}", f"do you have {some} for {mine}", f"i am looking for {some} for {mine}", f"we got {article(k)}. what should we name it", f"name ideas for {mine}", f"pick {some} for {mine}", f"i can't think of {some} for {mine}"])
        return q, a, None

    def in_sentence(self, r):
        o = self.open
        w = r.choice([r.choice(o.nouns), r.choice(o.verbs), r.choice(o.adjectives), r.choice(o.usual) if o.usual else r.choice(o.nouns), r.choice(o.rare)])
        quote = r.choice(['"', "", "", "'"])
        q = r.choice([f"use {quote}{w}{quote} in a sentence", f"use the word {quote}{w}{quote} in a sentence", f"make a sentence with {quote}{w}{quote}", f"write a sentence with the word {quote}{w}{quote}", f"give me a sentence with {quote}{w}{quote}", f"put {quote}{w}{quote} in a sentence", f"can you use {quote}{w}{quote} in a sentence", f"write one sentence with {quote}{w}{quote}", f"form a sentence with the word {quote}{w}{quote}",
                      f"a sentence with {quote}{w}{quote} please", f"give an example sentence for {quote}{w}{quote}", f"show me how to use {quote}{w}{quote} in a sentence"])
        return q, f'She wrote the word "{w}" on the board.', None

    # ---- what nobody else knows --------------------------------------------------------------

    def private(self, r):
        """What the asking person did, owns or thinks."""
        thing, did, am, own = (r.choice(x.split("|")) for x in (MY_THINGS, DID, AM, OURS))
        who = r.choice(RELATIVES)
        p = self.open.phrase(r)
        do_you = r.choice(["do you know", "can you tell me", "any idea", "can you guess", "guess", "do you remember", "could you tell me", "i wonder", "you know", "have you any idea"])
        x = r.random()
        if x < 0.3:
            core = r.choice([("where is my " + thing, f"where my {thing} is"), (f"where did i put my {thing}", f"where i put my {thing}"), (f"where did i leave my {thing}", f"where i left my {thing}"), (f"where did my {thing} go", f"where my {thing} went"), (f"who took my {thing}", f"who took my {thing}"), (f"where have i put my {thing}", f"where i have put my {thing}"),
                                                                     (f"where did my {who} put my {thing}", f"where my {who} put my {thing}"), (f"who has my {thing}", f"who has my {thing}"), (f"did i lose my {thing}", f"if i lost my {thing}"), (f"did i bring my {thing}", f"if i brought my {thing}")])
        elif x < 0.5:
            core = (f"what did i {did}", "what i " + _past(did))
        elif x < 0.62:
            core = (f"what am i {am}", f"what i am {am}")
        elif x < 0.75:
            core = (f"what is my {own}", f"what my {own} is")
        elif x < 0.86:
            core = r.choice([(f"what is my {who} {r.choice(['doing', 'thinking', 'cooking', 'reading', 'buying', 'planning', 'eating', 'hiding'])}", f"what my {who} is doing right now"), (f"what did my {who} say", f"what my {who} said"), (f"where is my {who}", f"where my {who} is"), (f"what does my {who} want", f"what my {who} wants for {r.choice(['christmas', 'dinner', 'the wedding'])}"), (f"is my {who} mad at me", f"if my {who} is mad at me"),
                             (f"does my {who} like me", f"if my {who} likes me"), (f"how old is my {who}", f"how old my {who} is"), (f"when is my {who}'s birthday", f"when my {who}'s birthday is"), (f"why is my {who} so quiet", f"why my {who} is so quiet"), (f"what is my {who} getting me", f"what my {who} is getting me for {r.choice(['my birthday', 'christmas', 'our wedding'])}"), (f"what is the name of my {who}", f"what my {who} is called")])
        else:
            core = r.choice([(f"did i lock the {r.choice(['door', 'car', 'house', 'window', 'bike'])}", "if i locked it"), (f"did i turn off the {r.choice(['stove', 'oven', 'iron', 'light', 'heater', 'tv', 'tap'])}", f"if i turned off the {r.choice(['stove', 'oven', 'iron', 'light', 'heater'])}"), (f"did i {p}", f"whether i should have kept my {thing}"), (f"how many {plural(self.open.noun(r))} do i have", f"how many {plural(self.open.noun(r))} i have"), (f"how much money do i have", "how much money i have"), (f"which {self.open.noun(r)} did i {r.choice(['buy', 'choose', 'take', 'lose', 'break'])}", f"which {self.open.noun(r)} i bought"),
                             (f"how tall am i", "how tall i am"), (f"how old am i", "how old i am"), (f"when did i {r.choice(['move here', 'start my job', 'buy the car', 'get married', 'last call my ' + who])}", "when i started my job"), (f"who am i {r.choice(['thinking of', 'meeting tonight', 'married to', 'talking about', 'waiting for'])}", "who i am thinking of"), (f"how long have i been {r.choice(['here', 'married', 'awake', 'waiting'])}", "how long i have been awake"), (f"what is in my {r.choice(['pocket', 'fridge', 'bag', 'hand', 'drawer', 'box', 'garage'])}", f"what is in my {r.choice(['pocket', 'fridge', 'bag', 'hand', 'drawer'])}"), (f"which number am i thinking of", "which number i am thinking of"), ("how many fingers am i holding up", "how many fingers i am holding up"), ("what color is my " + thing, "what color my " + thing + " is")])
        q = core[0] if r.random() < 0.5 else f"{do_you} {core[1]}"
        return q + r.choice(["", "", "", "?", " today" if "did i" in q and " my " not in q else ""]), PRIVATE, None

    def future(self, r):
        who, p = r.choice(RELATIVES), self.open.phrase(r)
        team = r.choice(["team", "side", "club", "band", "horse", "driver", "party", "player", "school", "country"])
        when = r.choice(["", "", " tomorrow", " next week", " next year", " one day", " this weekend", " on Saturday", " in ten years", " soon", " tonight", " next summer"])
        ev = r.choice("game match race election cup final world cup tournament contest vote show championship series fight".split())
        q = r.choice([f"which {team} will win the {ev}{when}", f"who will win the {ev}{when}", f"who is going to win the {ev}{when}", f"will we win the {ev}{when}", f"will my {who} {r.choice(['call me', 'come back', 'forgive me', 'marry me', 'be happy', 'visit us', 'pass the exam', 'find a job', 'get better', 'win'])}{when}", f"will i {r.choice(['be rich', 'be famous', 'get married', 'find love', 'pass my exam', 'get the job', 'be happy', 'win', 'get a raise', 'live long', 'be late', 'find a job', 'get a dog', 'meet someone'])}{when}",
                      f"what will happen{when}", f"what will i {r.choice(['be', 'do', 'dream', 'get'])}{when or ' one day'}", f"when will i {r.choice(['find a job', 'meet the right one', 'be rich', 'die', 'get married', 'have kids', 'be happy again', 'get my money back', 'get a raise'])}", f"will it {r.choice(['be a boy or a girl', 'work out', 'be all right', 'get better', 'end well'])}{when}", f"will they {r.choice(['win', 'come', 'be on time', 'like it', 'get married'])}{when}", f"how will the {ev} end{when}",
                      f"what will the world look like in {r.choice(['fifty', 'a hundred', 'ten', 'a thousand'])} years", f"will the {r.choice(['stock market', 'prices', 'market', 'house prices'])} go up{when}", f"what are the lottery numbers{when}", f"can you tell me my future", f"what will my {who} give me{when or ' for my birthday'}", f"is my {who} going to {r.choice(['win', 'call', 'be on time', 'be okay', 'have a boy', 'come'])}{when}", f"will i {p}{when}"])
        return q, FUTURE, None


def _past(did):
    first, _, rest = did.partition(" ")
    past = {"eat": "ate", "have": "had", "dream": "dreamt", "do": "did", "buy": "bought", "wear": "wore", "say": "said", "get": "got", "cook": "cooked", "watch": "watched", "read": "read", "promise": "promised", "forget": "forgot", "write": "wrote", "learn": "learned", "order": "ordered", "name": "named"}[first]
    return f"{past} {rest}".strip()
